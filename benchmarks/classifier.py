"""BiCClassifier on vectors: seconds to learn 100 classes of 50 vectors with 384 dimensions.

    python benchmarks/classifier.py

Prints the wall-clock time, the CPU time and the accuracy on other vectors. Imports and the
first use of torch are not counted.
"""

import argparse
import time

import numpy as np
import torch

from bic import BiCClassifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--vectors", type=int, default=50, help="of each class")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--steps", type=int, default=1, help="calls of partial_fit")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    draws = np.random.default_rng(0)
    means = draws.normal(size=(given.classes, given.dimensions))

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.repeat(np.arange(given.classes), count)
        noise = draws.normal(scale=2.0, size=(len(labels), given.dimensions))
        return (means[labels] + noise).astype(np.float32), labels

    vectors, labels = part(given.vectors)
    test_vectors, test_labels = part(20)
    BiCClassifier(epochs=1).fit(vectors[: 2 * given.vectors], labels[: 2 * given.vectors])
    classifier = BiCClassifier()
    wall = time.perf_counter()
    processor = time.process_time()
    for classes in np.array_split(np.arange(given.classes), given.steps):
        chosen = np.isin(labels, classes)
        classifier.partial_fit(vectors[chosen], labels[chosen])
    wall = time.perf_counter() - wall
    processor = time.process_time() - processor
    accuracy = classifier.score(test_vectors, test_labels)
    print(
        f"{given.classes} classes of {given.vectors} vectors with {given.dimensions} dimensions, "
        f"{given.steps} steps, {given.threads} threads: {wall:.1f} s ({processor:.1f} s of "
        f"CPU time), {100 * accuracy:.1f} % of other vectors right"
    )


if __name__ == "__main__":
    main()
