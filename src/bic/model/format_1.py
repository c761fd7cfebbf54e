"""Models of version 0.1: a correction, class means or a head in place of an answer."""

from typing import Any

from bic.model.answers import BlendedHead, CorrectedHead, NearestMean, RawHead, RetrainedHead
from bic.model.model import Tensors


def from_format_1(found: dict[str, Any], named: Tensors) -> tuple[dict[str, Any], Tensors]:
    """The description and tensors in the present format."""
    renamed: Tensors = {}
    for name, tensor in named.items():
        if name.startswith("previous."):
            name = f"answer.previous.network.{name.removeprefix('previous.')}"
        elif name == "class_means":
            name = "answer.means"
        elif name.startswith("own_head."):
            name = f"answer.{name.removeprefix('own_head.')}"
        elif not name.startswith("network."):
            continue
        if name.endswith("network.deviation"):
            name = f"{name.removesuffix('deviation')}std"
        renamed[name] = tensor
    answer: dict[str, Any] = {"kind": RawHead.kind}
    correction = found.get("correction")
    previous = found.get("previous")
    if previous is not None:
        answer = {
            "kind": BlendedHead.kind,
            "correction": correction,
            "teacher_correction": found.get("own_correction"),
            "share": previous["share"],
            "previous_correction": previous["correction"],
        }
    elif correction is not None:
        answer = {"kind": CorrectedHead.kind, "correction": correction}
    elif "answer.means" in renamed:
        answer = {"kind": NearestMean.kind}
    elif "answer.weight" in renamed:
        answer = {"kind": RetrainedHead.kind}
    return {**found, "answer": answer}, renamed
