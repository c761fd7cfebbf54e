"""Lessons: images to learn from, corrections, what is pending, and jobs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request
from fastapi.responses import StreamingResponse

from bic.data.preprocessing import DEFAULT_SIZE, Preprocessing
from bic.serve.batching import Upload, decoded_into, empty_pixels, unreadable
from bic.serve.context import Context, WithContext
from bic.serve.documents import CORRECTION_BODY, LEARN_BODY, failures
from bic.serve.failures import ApiError, too_many
from bic.serve.job import Job
from bic.serve.jobs import Options
from bic.serve.schemas import (
    CorrectionAnswer,
    JobInfo,
    JobsAnswer,
    LearnAnswer,
    PendingInfo,
    RetryBody,
    job_info,
    pending_info,
)
from bic.serve.uploads import Form, read_form

router = APIRouter(tags=["learn"])
UPLOAD_FAILURES = failures(400, 401, 403, 408, 409, 413, 415, 422, 429)


@router.post(
    "/v1/learn",
    status_code=202,
    responses=UPLOAD_FAILURES,
    openapi_extra={"requestBody": LEARN_BODY},
)
async def learn(request: Request, context: WithContext) -> LearnAnswer:
    """Learn images of one or several classes, together with the pending ones.

    The lesson is queued and learned in another process. The present version answers until the new
    one takes its place. Images that cannot be learned yet are kept as pending.
    """
    fields = ("class_name", "force", "max_drop")
    form = await read_form(request, context.limits, ("images",), fields)
    images = _by_class(form, context)
    options = Options(force=_flag(form, "force"), max_drop=_max_drop(form))
    await _check_images(form.images)
    job, message = await context.jobs.submit(images, options)
    return await _learn_answer(context, job, message)


async def _learn_answer(context: Context, job: Job | None, message: str) -> LearnAnswer:
    return LearnAnswer(
        job=None if job is None else job_info(job),
        message=message,
        pending=pending_info(await context.jobs.pending()),
    )


@router.post(
    "/v1/corrections",
    status_code=201,
    responses=UPLOAD_FAILURES,
    openapi_extra={"requestBody": CORRECTION_BODY},
)
async def correct(request: Request, context: WithContext) -> CorrectionAnswer:
    """Say which class an image has. It joins the next lesson."""
    form = await read_form(request, context.limits, ("image", "images"), ("class_name",))
    class_name = form.one("class_name")
    if not class_name or not form.images:
        raise ApiError(422, "an image or its class_name is missing", "send image and class_name")
    await _check_images(form.images)
    contents = [upload.content for upload in form.images]
    name = await context.jobs.add_pending(class_name, contents)
    pending = pending_info(await context.jobs.pending())
    return CorrectionAnswer(message=f"it joins the next lesson as {name}", pending=pending)


@router.get("/v1/pending", responses=failures(401, 403))
async def pending(context: WithContext) -> PendingInfo:
    """The images that wait for the next lesson."""
    return pending_info(await context.jobs.pending())


@router.delete("/v1/pending", responses=failures(401, 403, 422))
async def remove_pending(
    context: WithContext,
    class_name: Annotated[str | None, Query(max_length=200, description="One class only.")] = None,
) -> PendingInfo:
    """Delete the images that wait for the next lesson."""
    await context.jobs.remove_pending(class_name)
    return pending_info(await context.jobs.pending())


@router.get("/v1/jobs", responses=failures(401, 403))
async def jobs(context: WithContext) -> JobsAnswer:
    """All jobs that are remembered, newest first."""
    found = reversed(context.jobs.jobs.values())
    return JobsAnswer(jobs=[job_info(job) for job in found])


@router.get("/v1/jobs/{job_id}", responses=failures(401, 403, 404, 422))
async def job(context: WithContext, job_id: str) -> JobInfo:
    """A job: its state, its progress and, at its end, its report."""
    return job_info(context.jobs.find(job_id))


@router.delete("/v1/jobs/{job_id}", responses=failures(401, 403, 404, 409, 422))
async def cancel(context: WithContext, job_id: str) -> JobInfo:
    """Cancel a job that waits or runs. The model stays as it is."""
    found = context.jobs.find(job_id)
    await context.jobs.cancel(found)
    return job_info(found)


@router.post(
    "/v1/jobs/{job_id}/retry",
    status_code=202,
    responses=failures(400, 401, 403, 404, 408, 409, 413, 422, 429),
)
async def retry(
    context: WithContext, job_id: str, body: Annotated[RetryBody | None, Body()] = None
) -> LearnAnswer:
    """Learn the images of a job again that failed, was cancelled or was refused.

    `force` makes a refused version live; it is not trained again.
    """
    asked = body or RetryBody()
    options = Options(force=asked.force, max_drop=asked.max_drop)
    found = await context.jobs.retry(context.jobs.find(job_id), options)
    return await _learn_answer(context, found, "the same images will be learned again")


@router.get(
    "/v1/jobs/{job_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "An event for each change."},
        **failures(401, 403, 404, 422, 429),
    },
)
async def events(context: WithContext, job_id: str) -> StreamingResponse:
    """The job as server-sent events, until it has ended."""
    found = context.jobs.find(job_id)
    if context.jobs.num_streams >= context.limits.streams:
        raise too_many(f"{context.jobs.num_streams} streams are open")
    return StreamingResponse(_stream(context, found), media_type="text/event-stream")


async def _stream(context: Context, found: Job) -> AsyncIterator[str]:
    context.jobs.num_streams += 1
    changes = context.jobs.events(found)
    stop = asyncio.ensure_future(context.stopping.wait())
    try:
        while True:
            change = asyncio.ensure_future(anext(changes))
            await asyncio.wait((change, stop), return_when=asyncio.FIRST_COMPLETED)
            if not change.done():
                change.cancel()
                return
            state = change.result()
            if state is None:
                yield ": waiting\n\n"
            else:
                yield f"event: job\ndata: {job_info(state).model_dump_json()}\n\n"
    except StopAsyncIteration:
        return
    finally:
        stop.cancel()
        context.jobs.num_streams -= 1


def _by_class(form: Form, context: Context) -> dict[str, list[bytes]]:
    """The images of each class. One name goes for all images, or each image has its own."""
    names = form.fields.get("class_name", [])
    if len(names) == 1:
        names = names * len(form.images)
    if len(names) != len(form.images) or (not form.images and form.fields.get("class_name")):
        raise ApiError(
            422,
            f"there are {len(form.images)} images and {len(names)} class names",
            "send one class_name for all images, or one for each, in order",
        )
    found: dict[str, list[bytes]] = {}
    for name, upload in zip(names, form.images, strict=True):
        found.setdefault(name, []).append(upload.content)
    if len(found) > context.limits.classes:
        raise ApiError(
            413, f"the request has more than {context.limits.classes} classes", "send fewer at once"
        )
    return found


def _flag(form: Form, name: str) -> bool:
    value = (form.one(name) or "false").lower()
    if value not in ("true", "false"):
        raise ApiError(422, f"{name} must be true or false", f"change {name}")
    return value == "true"


def _max_drop(form: Form) -> float:
    text = form.one("max_drop")
    try:
        value = 10.0 if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise ApiError(422, "max_drop must be from 0 to 100 points", "change max_drop")
    return value


async def _check_images(uploads: list[Upload]) -> None:
    """Raise ApiError for the first image that cannot be decoded."""
    preprocessing = Preprocessing(channels=3, size=DEFAULT_SIZE)

    def check() -> None:
        for upload in uploads:
            problem = decoded_into(empty_pixels(1, preprocessing), upload.content, preprocessing)
            if problem is not None:
                raise unreadable(upload.name, problem.reason)

    await asyncio.to_thread(check)
