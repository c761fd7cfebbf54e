// Images that the user gives: read, shown as thumbnails, and made smaller before they are sent.

const LARGE = 1_000_000; // bytes; larger images are scaled down
const SIDE = 1280; // pixels of the longer side of a scaled image

// Files that are images, also by their name: some systems give no type.
export const isImage = (file) =>
  file.type.startsWith("image/") || /\.(jpe?g|png|webp|bmp|gif|tiff?|ppm)$/i.test(file.name);

// A canvas with the image, at most `side` pixels wide and high. Empty if the browser cannot show
// the image; the server may still read it, such as a TIFF.
export async function thumbnail(file, side, label = "") {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label || file.name);
  try {
    await draw(canvas, file, side);
  } catch {
    canvas.width = 1;
    canvas.height = 1;
  }
  return canvas;
}

// The file itself, or a smaller JPEG of a large photograph.
export async function toSend(file) {
  if (file.size <= LARGE) return file;
  const canvas = document.createElement("canvas");
  try {
    await draw(canvas, file, SIDE);
  } catch {
    return file;
  }
  const smaller = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.92));
  if (!smaller || smaller.size >= file.size) return file;
  return new File([smaller], file.name.replace(/\.\w+$/, "") + ".jpg", { type: "image/jpeg" });
}

async function draw(canvas, file, side) {
  const bitmap = await createImageBitmap(file); // turned upright as its EXIF orientation says
  const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.fillStyle = "#fff"; // transparent parts become white, as on the server
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
}
