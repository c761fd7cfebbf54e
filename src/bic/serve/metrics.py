"""Counters in the text format of Prometheus."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
OTHER = "other"  # the route of a request that none fits: paths of strangers are not counted


class Metrics:
    """What the server has done since it started. Used by one thread; `batch` by one at a time."""

    def __init__(self) -> None:
        self.start = time.time()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.buckets: Counter[tuple[str, float]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.num_images = 0
        self.num_batches = 0
        self.num_none = 0
        self.num_loads = 0
        self.jobs: Counter[str] = Counter()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests[route, method if route != OTHER else "", status] += 1
        self.seconds[route] += seconds
        for bound in BOUNDS:
            if seconds <= bound:
                self.buckets[route, bound] += 1
                break

    def batch(self, num_images: int) -> None:
        self.num_batches += 1
        self.num_images += num_images

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """All metrics. `gauges` are (name, help, value) of the present state."""
        lines = [*self._requests(), *self._latencies()]
        counts = (
            ("bic_predicted_images_total", "Images that were predicted.", self.num_images),
            ("bic_predicted_none_total", "Images that were none of the classes.", self.num_none),
            ("bic_batches_total", "Forward passes of the network.", self.num_batches),
            ("bic_model_loads_total", "Versions that were loaded.", self.num_loads),
        )
        for name, text, count in counts:
            lines += [*_head(name, text, "counter"), f"{name} {count}"]
        lines += _head("bic_jobs_total", "Lessons that have ended, by state.", "counter")
        for state, count in sorted(self.jobs.items()):
            lines.append(f'bic_jobs_total{{state="{state}"}} {count}')
        for name, text, value in gauges:
            lines += [*_head(name, text, "gauge"), f"{name} {value:g}"]
        name = "process_start_time_seconds"
        lines += [*_head(name, "Start time of the server.", "gauge"), f"{name} {self.start:.3f}"]
        return "\n".join(lines) + "\n"

    def _requests(self) -> Iterator[str]:
        name = "bic_requests_total"
        yield from _head(name, "Requests, by route, method and status.", "counter")
        for (route, method, status), count in sorted(self.requests.items()):
            labels = f'route="{route}",method="{method}",status="{status}"'
            yield f"{name}{{{labels}}} {count}"

    def _latencies(self) -> Iterator[str]:
        name = "bic_request_seconds"
        yield from _head(name, "Seconds until a request was answered.", "histogram")
        totals: Counter[str] = Counter()
        for (route, _, _), count in self.requests.items():
            totals[route] += count
        for route, total in sorted(totals.items()):
            so_far = 0
            for bound in BOUNDS:
                so_far += self.buckets[route, bound]
                yield f'{name}_bucket{{route="{route}",le="{bound:g}"}} {so_far}'
            yield f'{name}_bucket{{route="{route}",le="+Inf"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self.seconds[route]:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
