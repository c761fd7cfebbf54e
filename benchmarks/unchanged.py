"""Record what small runs of every method compute, to prove that results have not changed.

    python benchmarks/unchanged.py before.json               # with the code as it was
    python benchmarks/unchanged.py after.json                # with the code as it is
    python benchmarks/unchanged.py --compare before.json after.json

The runs use the command line, with one thread. For each of them the script records the checksum of
the final weights (names of tensors may change), of the memory and of the predictions, and α, β and
the accuracy of every step. The checksums are valid for one machine and one version of torch.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
from PIL import Image
from sklearn.datasets import load_digits

METHODS = [
    "finetune",
    "lwf",
    "icarl",
    "eeil",
    "distill",
    "bic",
    "bic-trained",
    "fc-retrain",
    "joint",
]
SHARE = (
    "method_settings.previous_share=0.5",
    "recipe.previous_share=0.5",
)  # the setting's name, now and before
IMAGES = ["--set", "recipe.image_size=16", "--memory", "60", "--epochs", "1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "files", nargs="+", type=Path, help="the file to write, or the two to compare"
    )
    parser.add_argument("--compare", action="store_true")
    arguments = parser.parse_args()
    if arguments.compare:
        sys.exit(compare(*(json.loads(file.read_text()) for file in arguments.files)))
    with tempfile.TemporaryDirectory() as folder:
        recorded = record_all(Path(folder))
    arguments.files[0].write_text(json.dumps(recorded, indent=1) + "\n")


def record_all(folder: Path) -> dict[str, object]:
    write_parquet(folder / "parquet")
    write_images(folder / "images")
    runs: dict[str, list[str]] = {
        f"digits {method}": ["digits", "--method", method] for method in METHODS
    }
    runs["ensemble with a previous share"] = ["digits", "--backbone", "mlp+mlp", "--set", "SHARE"]
    runs["byte budget"] = ["digits", "--memory", "20KB"]
    runs["unequal steps"] = ["digits", "--step-sizes", "4,1,3,2", "--backbone", "small"]
    runs["random exemplars, penalty"] = [
        "digits",
        "--exemplars",
        "random",
        "--set",
        "correction_penalty=0.1",
    ]
    runs["parquet"] = [str(folder / "parquet"), "--recipe", "fast", *IMAGES]
    runs["images"] = [str(folder / "images"), "--recipe", "fast", *IMAGES]
    runs["images, icarl"] = [
        str(folder / "images"),
        "--method",
        "icarl",
        "--recipe",
        "fast",
        *IMAGES,
    ]
    runs["images, eeil"] = [str(folder / "images"), "--method", "eeil", "--recipe", "fast", *IMAGES]
    runs["images, fc-retrain"] = [
        str(folder / "images"),
        "--method",
        "fc-retrain",
        "--recipe",
        "fast",
        *IMAGES,
    ]
    runs["images, best"] = [
        *(str(folder / "images"), "--recipe", "best", "--backbone", "fast+fast"),
        *("--set", "recipe.precision=float32", *IMAGES),
    ]
    recorded: dict[str, object] = {}
    for name, arguments in runs.items():
        if "--method" not in arguments:
            arguments = [*arguments, "--method", "bic"]
        recorded[name] = record(["-m", "bic"], arguments, folder / "runs" / name)
        print(name, recorded[name], file=sys.stderr)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "bic"]
    for method in ("bic", "icarl"):
        name = f"two processes, {method}"
        recorded[name] = record(torchrun, ["digits", "--method", method], folder / "runs" / name)
        print(name, recorded[name], file=sys.stderr)
    return recorded


def record(launcher: list[str], arguments: list[str], out: Path) -> dict[str, object]:
    """Run the protocol and sum up the folder that it leaves."""
    for share in SHARE:
        named = [share if argument == "SHARE" else argument for argument in arguments]
        command = [
            sys.executable,
            *launcher,
            "run",
            *named,
            "--threads",
            "1",
            "--no-compile",
            "--quiet",
        ]
        done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True)
        if done.returncode == 0:
            return summary(out)
    raise RuntimeError(done.stderr)


def summary(out: Path) -> dict[str, object]:
    tensors = safetensors.numpy.load_file(out / "model" / "weights.safetensors")
    memory = pq.read_table(out / "model" / "memory.parquet")
    result = json.loads((out / "result.json").read_text())
    predictions = []
    for number in range(1, len(result["steps"]) + 1):
        with np.load(out / f"predictions-{number}.npz") as arrays:
            predictions += [arrays[name].tobytes() for name in sorted(arrays)]
    return {
        "weights": checksum(
            sorted(hashlib.sha256(array.tobytes()).digest() for array in tensors.values())
        ),
        "memory": checksum([repr(row).encode() for row in memory.to_pylist()]),
        "predictions": checksum(predictions),
        "alpha": [step["alpha"] for step in result["steps"]],
        "beta": [step["beta"] for step in result["steps"]],
        "top1": [step["top1"] for step in result["steps"]],
    }


def checksum(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images of 16 × 16, labels, and which are for testing: every fifth."""
    loaded = load_digits()
    images = (
        np.rint(loaded.images * (255 / 16)).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    )
    return images, loaded.target, np.arange(len(images)) % 5 == 0


def write_images(folder: Path) -> None:
    images, labels, is_test = digits()
    for number, (image, label, test) in enumerate(zip(images, labels, is_test, strict=True)):
        place = folder / ("test" if test else "train") / f"digit-{label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number:04d}.png")


def write_parquet(folder: Path) -> None:
    images, labels, is_test = digits()
    folder.mkdir()
    encoded = []
    for image in images:
        file = folder / "image.png"
        Image.fromarray(image).save(file)
        encoded.append({"bytes": file.read_bytes()})
    for split, chosen in (("train", ~is_test), ("test", is_test)):
        rows = np.flatnonzero(chosen)
        table = pa.table({"image": [encoded[row] for row in rows], "label": labels[rows]})
        pq.write_table(table, folder / f"{split}-0.parquet")


def compare(before: dict[str, dict[str, object]], after: dict[str, dict[str, object]]) -> int:
    differing = 0
    for name in {**before, **after}:
        if name not in before or name not in after:
            print(f"{name}: only in one file")
            differing += 1
            continue
        changed = [part for part in before[name] if before[name][part] != after[name].get(part)]
        print(f"{name}: {'differs in ' + ', '.join(changed) if changed else 'the same'}")
        differing += bool(changed)
    print(f"{len(before)} runs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    main()
