"""The images of a request: parts of a multipart form, or the body itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bic.serve.batching import Upload
from bic.serve.failures import ApiError
from bic.serve.limits import Limits
from bic.text import printable

MAX_FIELD_BYTES = 4096  # of a field that is not a file
MAX_NAME = 200  # characters of a file name
MULTIPART = "multipart/form-data"
RAW = ("image/", "application/octet-stream")


@dataclass
class Form:
    """Images and other fields of a form, each in the order in which they were sent."""

    images: list[Upload] = field(default_factory=list)
    fields: dict[str, list[str]] = field(default_factory=dict)

    def one(self, name: str) -> str | None:
        """The value of a field that is given once or not at all."""
        values = self.fields.get(name, [])
        if len(values) > 1:
            raise ApiError(422, f"{name} is given {len(values)} times", "give it once")
        return values[0] if values else None


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_images(request: Request, limits: Limits, name: str | None) -> list[Upload]:
    """The images of a form, or the one image that is the body. `name` is the name of that."""
    kind = media_type(request)
    if kind == MULTIPART:
        form = await read_form(request, limits, ("images",), ())
        uploads = form.images
    elif not kind or kind.startswith(RAW):
        content = await request.body()
        uploads = [Upload(_shown(name or "image"), content)] if content else []
    else:
        raise ApiError(
            415,
            f"images cannot be sent as {printable(kind)[:MAX_NAME]}",
            f"send {MULTIPART} with the field images, or one image as the body",
        )
    if not uploads:
        raise ApiError(400, "no image was sent", "send one or more images")
    return uploads


async def read_form(
    request: Request, limits: Limits, image_fields: Sequence[str], other_fields: Sequence[str]
) -> Form:
    """A multipart form. Raises ApiError for fields that are unknown, and for too many images."""
    if media_type(request) != MULTIPART:
        raise ApiError(415, "the request is not a form", f"send {MULTIPART}")
    form = Form()
    try:
        parts = request.form(
            max_files=limits.files + 1, max_fields=2 * limits.files, max_part_size=MAX_FIELD_BYTES
        )
        async with parts as found:
            for name, value in found.multi_items():
                if isinstance(value, UploadFile) and name in image_fields:
                    content = await value.read()
                    form.images.append(Upload(_shown(value.filename or "image"), content))
                elif isinstance(value, str) and name in other_fields:
                    form.fields.setdefault(name, []).append(value)
                else:
                    raise _unknown_field(name, [*image_fields, *other_fields], value)
    except ApiError:
        raise
    except UnicodeError as error:
        raise ApiError(400, "the form has text in an unknown encoding", "send UTF-8") from error
    except HTTPException as error:
        if "Too many" in error.detail:
            raise _too_many_files(limits) from error
        raise ApiError(400, f"the form cannot be read ({error.detail})", "send it again") from error
    if len(form.images) > limits.files:
        raise _too_many_files(limits)
    return form


def _unknown_field(name: str, known: Sequence[str], value: UploadFile | str) -> ApiError:
    kind = "file" if isinstance(value, UploadFile) else "field"
    shown = printable(name)[:MAX_NAME]
    return ApiError(422, f"the form has an unexpected {kind} {shown!r}", f"send {', '.join(known)}")


def _too_many_files(limits: Limits) -> ApiError:
    return ApiError(413, f"the request has more than {limits.files} images", "send fewer at once")


def _shown(name: str) -> str:
    """A name as answers repeat it. It is never used as a path."""
    return printable(name)[:MAX_NAME]
