"""The JSON of the API, as it is documented at /docs."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bic.model.intervals import Share
from bic.serve.job import Job, Phase, State
from bic.serve.jobs import Pending

MaxDrop = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Failure(BaseModel):
    """What went wrong and what would help. `file` names the image that it is about."""

    code: str
    problem: str
    remedy: str
    file: str | None = None


class FailureAnswer(BaseModel):
    error: Failure


class ClassProbability(BaseModel):
    name: str
    probability: float


class ImagePrediction(BaseModel):
    """The most likely classes of an image, best first. `answer` is null for none of them."""

    name: str
    answer: str | None
    is_none: bool
    classes: list[ClassProbability]


class PredictAnswer(BaseModel):
    version: int
    predictions: list[ImagePrediction]


class Accuracy(BaseModel):
    """A share of held-out images, with its 95 % interval from `low` to `high`."""

    value: float
    low: float
    high: float
    correct: int
    total: int


def accuracy(share: Share | None) -> Accuracy | None:
    if share is None:
        return None
    low, high = share.interval
    return Accuracy(value=share.value, low=low, high=high, correct=share.correct, total=share.total)


class ClassInfo(BaseModel):
    """A class. `trend` has its accuracy in each kept version; the live one is the last."""

    name: str
    added: int
    seen: int
    kept: int
    held_out: int
    accuracy: Accuracy | None
    trend: list[Accuracy | None]
    thumbnails: list[str]


class ClassesAnswer(BaseModel):
    version: int | None
    classes: list[ClassInfo]


class HistoryEvent(BaseModel):
    time: str
    action: str
    version: int
    text: str
    seconds: float


class HistoryAnswer(BaseModel):
    """What was done, oldest first. `candidate` is a version that was refused."""

    version: int | None
    versions: list[int]
    candidate: int | None
    refusal: str
    events: list[HistoryEvent]


class LearnReportInfo(BaseModel):
    """What a lesson did. The accuracies are on held-out images."""

    version: int
    is_live: bool
    is_changed: bool
    refusal: str | None
    note: str
    new_classes: list[str]
    known_classes: list[str]
    num_images: int
    num_left_out: int
    old_before: Accuracy | None
    old_after: Accuracy | None
    new_after: Accuracy | None
    seconds: float


def report_info(report: dict[str, Any] | None) -> LearnReportInfo | None:
    """The report of a learning process, which has sent it as JSON."""
    if report is None:
        return None
    shares = {}
    verdict = report["verdict"] or {}
    for name in ("old_before", "old_after", "new_after"):
        share = verdict.get(name)
        shares[name] = None if share is None else accuracy(Share(**share))
    return LearnReportInfo.model_validate({**report, **shares})


class JobInfo(BaseModel):
    """A lesson. `share` is its progress from 0 to 1; `version` the version that it made."""

    id: str
    state: State
    phase: Phase
    share: float
    seconds_left: float | None
    message: str
    version: int | None
    classes: list[str]
    num_images: int
    created: str
    finished: str | None
    can_retry: bool
    report: LearnReportInfo | None


def job_info(job: Job) -> JobInfo:
    return JobInfo.model_validate({**asdict(job), "report": report_info(job.report)})


class JobsAnswer(BaseModel):
    jobs: list[JobInfo]


class PendingClass(BaseModel):
    name: str
    num_images: int
    is_ready: bool


class PendingInfo(BaseModel):
    """Images that wait for the next lesson. `message` says what they lack."""

    num_images: int
    classes: list[PendingClass]
    can_learn: bool
    message: str


def pending_info(pending: Pending) -> PendingInfo:
    ready = set(pending.ready.ready)
    classes = []
    for name, images in pending.images.items():
        info = PendingClass(name=name, num_images=len(images), is_ready=name in ready)
        classes.append(info)
    return PendingInfo(
        num_images=sum(info.num_images for info in classes),
        classes=classes,
        can_learn=bool(ready),
        message=pending.ready.problem,
    )


class LearnAnswer(BaseModel):
    """`job` is null if the images wait for the next lesson; `message` says why."""

    job: JobInfo | None
    message: str
    pending: PendingInfo


class CorrectionAnswer(BaseModel):
    message: str
    pending: PendingInfo


class Body(BaseModel):
    """A JSON body. Fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid")


class RetryBody(Body):
    force: bool = False
    max_drop: MaxDrop = 10.0


class RollbackBody(Body):
    """`version` null is the version that the live one was learned on."""

    version: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class RetireBody(Body):
    classes: Annotated[list[Name], Field(min_length=1, max_length=1000)]


class RenameBody(Body):
    old: Name
    new: Name


class VersionAnswer(BaseModel):
    version: int


class RetireAnswer(VersionAnswer):
    """`num_images` is the number of kept images that were deleted."""

    num_images: int


class LimitsInfo(BaseModel):
    upload_bytes: int
    files: int
    classes: int
    pixels: int
    queued_jobs: int
    pending_images: int


class StatusAnswer(BaseModel):
    """What a page needs to know. `token_ok`: the token that was sent is right."""

    name: str
    version: int | None
    num_classes: int
    image_size: int | None
    can_reject: bool
    default_reject: float
    needs_token_to_read: bool
    token_ok: bool
    problem: str | None
    limits: LimitsInfo


class HealthAnswer(BaseModel):
    status: Literal["ok", "ready"]
    version: int | None = None
