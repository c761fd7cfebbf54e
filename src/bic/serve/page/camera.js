// A photo from the camera of a computer.

import { $, setMessage } from "./dom.js";

// Resolves to a File, or null if no photo was taken.
export async function takePhoto() {
  const dialog = $("camera");
  const video = $("camera-view");
  const take = $("camera-take");
  setMessage($("camera-message"), "");
  take.disabled = true;
  dialog.showModal();
  const closed = new Promise((resolve) => {
    dialog.addEventListener("close", resolve, { once: true });
  });
  let photo = null;
  const shoot = async () => {
    photo = await picture(video);
    dialog.close();
  };
  take.addEventListener("click", shoot);
  const stream = await start(video, take);
  await closed;
  take.removeEventListener("click", shoot);
  for (const track of stream?.getTracks() ?? []) track.stop();
  video.srcObject = null;
  return photo;
}

async function start(video, take) {
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: true });
    video.srcObject = stream;
    await video.play();
    take.disabled = false;
    take.focus();
    return stream;
  } catch {
    const remedy = "Connect one, allow it in the browser, or choose a file.";
    setMessage($("camera-message"), `No camera can be used. ${remedy}`);
    return null;
  }
}

async function picture(video) {
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  const bytes = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
  return new File([bytes], `photo ${new Date().toLocaleTimeString("en")}.jpg`, {
    type: "image/jpeg",
  });
}
