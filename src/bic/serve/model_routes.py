"""The model: its classes, its history, and what can be done to its versions."""

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Request, Response

from bic.model.version_files import consistent, is_versioned
from bic.model.versions import Root
from bic.serve.context import Context, WithContext
from bic.serve.documents import failures
from bic.serve.failures import ApiError, no_model
from bic.serve.pictures import MOST_PICTURES
from bic.serve.schemas import (
    ClassesAnswer,
    ClassInfo,
    HistoryAnswer,
    HistoryEvent,
    LimitsInfo,
    RenameBody,
    RetireAnswer,
    RetireBody,
    RollbackBody,
    StatusAnswer,
    VersionAnswer,
    accuracy,
)
from bic.store.overview import ClassSummary, summaries_of

router = APIRouter(tags=["model"])
DEFAULT_REJECT = 0.05
ID_LENGTH = 16  # of a checksum, in the address of a thumbnail
CHANGE_FAILURES = failures(400, 401, 403, 408, 409, 413, 422)

Value = TypeVar("Value")


@router.get("/v1/status", responses=failures(401, 403))
async def status(request: Request, context: WithContext) -> StatusAnswer:
    """The version that answers, what it can do, and the limits of the server."""
    live = context.serving.live
    model = None if live is None else live.model
    limits = context.limits
    return StatusAnswer(
        name=context.folder.path.resolve().name,
        version=None if live is None else live.version,
        num_classes=0 if model is None else len(model.active),
        image_size=None if model is None else model.preprocessing.size,
        can_reject=model is not None and model.calibration is not None,
        default_reject=DEFAULT_REJECT,
        needs_token_to_read=context.access.is_protected,
        token_ok=context.access.has_token(request.headers),
        problem=context.serving.problem,
        limits=LimitsInfo.model_validate(vars(limits)),
    )


@router.get("/v1/classes", responses=failures(401, 403))
async def classes(context: WithContext) -> ClassesAnswer:
    """The classes that can be predicted, in the order in which they were learned."""
    folder = context.folder.path
    if not is_versioned(folder):
        return ClassesAnswer(version=None, classes=[])

    def read(root: Root) -> tuple[int, tuple[ClassSummary, ...]]:
        return root.live, summaries_of(folder, root)

    version, summaries = await asyncio.to_thread(consistent, folder, read)
    return ClassesAnswer(version=version, classes=[_class_info(found) for found in summaries])


def _class_info(summary: ClassSummary) -> ClassInfo:
    pictures = []
    if summary.memory is not None:
        address = f"/v1/classes/{summary.memory.sha256[:ID_LENGTH]}/thumbnails"
        count = min(MOST_PICTURES, summary.kept)
        pictures = [f"{address}/{number}" for number in range(count)]
    return ClassInfo(
        name=summary.name,
        added=summary.added,
        seen=summary.seen,
        kept=summary.kept,
        held_out=summary.held_out,
        accuracy=accuracy(summary.accuracy),
        trend=[accuracy(share) for share in summary.trend],
        thumbnails=pictures,
    )


@router.get(
    "/v1/classes/{class_id}/thumbnails/{number}",
    response_class=Response,
    responses={
        200: {"content": {"image/webp": {}}, "description": "A small picture."},
        **failures(401, 403, 404, 422),
    },
)
async def thumbnail(
    context: WithContext,
    class_id: Annotated[str, Path(pattern=f"^[0-9a-f]{{{ID_LENGTH}}}$")],
    number: Annotated[int, Path(ge=0, lt=MOST_PICTURES)],
) -> Response:
    """One of the images that the model keeps of a class, made small. See /v1/classes."""
    if not is_versioned(context.folder.path):
        raise ApiError(404, "there is no such picture", "see /v1/classes")
    pictures = await asyncio.to_thread(context.pictures.of_class, class_id)
    if number >= len(pictures):
        raise ApiError(404, "there is no such picture", "see /v1/classes")
    return Response(pictures[number], media_type="image/webp")


@router.get("/v1/history", responses=failures(401, 403))
async def history(context: WithContext) -> HistoryAnswer:
    """What was done to the model, oldest first, and the versions that are kept."""
    folder = context.folder.path
    if not is_versioned(folder):
        return HistoryAnswer(version=None, versions=[], candidate=None, refusal="", events=[])
    root = await asyncio.to_thread(consistent, folder, lambda root: root)
    return HistoryAnswer(
        version=root.live,
        versions=[kept.number for kept in root.versions if kept.number != root.candidate],
        candidate=root.candidate,
        refusal=root.refusal,
        events=[HistoryEvent.model_validate(vars(event)) for event in root.history],
    )


@router.post("/v1/rollback", responses=CHANGE_FAILURES)
async def rollback(context: WithContext, body: RollbackBody) -> VersionAnswer:
    """Make an earlier version live again. No version is lost."""
    version = await _changed(context, lambda: context.folder.rollback(body.version))
    return VersionAnswer(version=version)


@router.post("/v1/retire", responses=CHANGE_FAILURES)
async def retire(context: WithContext, body: RetireBody) -> RetireAnswer:
    """Stop predicting classes, and delete their images for good, also those that wait."""
    num_images = await _changed(context, lambda: context.folder.retire(*body.classes))
    return RetireAnswer(version=context.live().version, num_images=num_images)


@router.post("/v1/rename", responses=CHANGE_FAILURES)
async def rename(context: WithContext, body: RenameBody) -> VersionAnswer:
    """Give a class another name, in every kept version."""
    await _changed(context, lambda: context.folder.rename(body.old, body.new))
    return VersionAnswer(version=context.live().version)


async def _changed(context: Context, change: Callable[[], Value]) -> Value:
    """Change the model, and let the changed version answer before the caller hears of it."""
    if not is_versioned(context.folder.path):
        raise no_model()
    value = await asyncio.to_thread(change)
    await context.serving.refresh()
    return value
