"""The limits of the server. A request beyond one of them gets a 4xx answer that names it."""

from dataclasses import dataclass

from bic.data.decode_jpeg import MAX_DECODED_PIXELS

MB = 2**20


@dataclass(frozen=True)
class Limits:
    """What a request may take, and what all of them together may take."""

    upload_bytes: int = 64 * MB  # of one request
    json_bytes: int = MB  # of a request without images
    files: int = 256  # images of one request
    classes: int = 64  # different classes of one lesson request
    pixels: int = MAX_DECODED_PIXELS  # of an image; JPEGs may be larger, see decode.py
    queued_jobs: int = 8  # that wait or run
    pending_images: int = 2000  # that wait for the next lesson
    pending_bytes: int = 512 * MB
    uploads_in_flight: int = 512 * MB  # bytes of all requests that are being answered
    waiting_images: int = 2048  # to be predicted
    streams: int = 64  # open streams of events
    header_seconds: float = 20.0  # until the headers of a request have arrived
    body_seconds: float = 60.0  # until its body has arrived
    answer_seconds: float = 60.0  # until it is predicted
    grace_seconds: float = 10.0  # for running requests after SIGTERM
