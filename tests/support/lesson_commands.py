"""Learning processes that go wrong: commands in place of `python -m bic.serve.learner`."""

import sys

START = """
import time, torch, bic.learn.step, bic.serve.learner
from bic.learn.stage1 import train_network
"""
END = """
bic.learn.step.train_network = changed
bic.serve.learner.main()
"""

# Training that never ends.
ENDLESS = """
def changed(lesson, *arguments, **options):
    with lesson.progress.task(lesson.title, 100):
        while True:
            time.sleep(0.05)
"""

# Training that mistakes every old class for another.
SPOILT = """
def changed(lesson, model, *arguments, **options):
    train_network(lesson, model, *arguments, **options)
    with torch.no_grad():
        model.network.head.weight.neg_()
        model.network.head.bias.neg_()
"""

FAILING = """
def changed(*arguments, **options):
    raise RuntimeError("no luck")
"""


def command(change: str) -> tuple[str, ...]:
    return (sys.executable, "-c", START + change + END)
