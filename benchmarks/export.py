"""An exported model compared with its model: probabilities of image files, and time in int8.

    python benchmarks/export.py MODEL IMAGES

IMAGES are labelled images, such as photos/test. Times are CPU time of one thread for 64 images, the
best of ten.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
from PIL import Image

from bic import Model
from bic.model.predict import image_files
from bic.store.held_out import labelled_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path)
    given = parser.parse_args()
    model = Model.load(given.model)
    labelled = labelled_for(model, given.images)
    with TemporaryDirectory() as folder:
        whole = model.export(Path(folder) / "float.onnx").path
        int8 = model.export(Path(folder) / "int8.onnx", int8=True, held_out=labelled).path
        compare(model, session(whole), image_files([given.images]))
        for path in (whole, int8):
            seconds = best_time(session(path), model)
            print(f"{path.stem}: {path.stat().st_size / 1e6:.2f} MB, {1000 * seconds:.0f} ms")


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)


def compare(model: Model, exported: onnxruntime.InferenceSession, paths: list[str]) -> None:
    """Print how much the probabilities differ, for decoded images and for files."""
    channels = "RGB" if model.preprocessing.channels == 3 else "L"
    images = [Image.open(path).convert(channels) for path in paths]
    rows = []
    for image in images:
        pixels = np.atleast_3d(np.asarray(image))
        rows.append(exported.run(["probabilities"], {"images": pixels[None]})[0][0])
    found = np.stack(rows)
    for kind, inputs in (("decoded images", images), ("files", paths)):
        expected = model.predict_proba(inputs)
        largest = np.abs(found - expected).max(axis=1)
        other = int((found.argmax(axis=1) != expected.argmax(axis=1)).sum())
        print(
            f"{len(paths)} {kind}: probabilities differ by {largest.max():.4f} at most, "
            f"{largest.mean():.4f} on average; {other} answers differ"
        )


def best_time(exported: onnxruntime.InferenceSession, model: Model) -> float:
    size = model.preprocessing.size
    images = np.zeros((64, size, size, model.preprocessing.channels), dtype=np.uint8)
    times = []
    for _ in range(10):
        start = time.process_time()
        exported.run(None, {"images": images})
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
