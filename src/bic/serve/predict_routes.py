"""POST /v1/predict: what the model thinks about images."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from bic.errors import UserError
from bic.model.predict import Prediction
from bic.serve.context import WithContext
from bic.serve.documents import IMAGES_BODY, failures
from bic.serve.failures import api_error
from bic.serve.schemas import PredictAnswer
from bic.serve.uploads import read_images

router = APIRouter(tags=["predict"])


@router.post(
    "/v1/predict",
    response_model=PredictAnswer,
    responses=failures(400, 401, 403, 408, 409, 413, 415, 422, 429),
    openapi_extra={"requestBody": IMAGES_BODY},
)
async def predict(
    request: Request,
    context: WithContext,
    top: Annotated[int, Query(ge=1, le=1000, description="Classes for each image.")] = 5,
    reject: Annotated[
        float | None,
        Query(
            ge=0,
            lt=1,
            allow_inf_nan=False,
            description="The share of images of known classes that may wrongly be none of them.",
        ),
    ] = None,
    name: Annotated[str | None, Query(description="The name of an image sent as body.")] = None,
) -> JSONResponse:
    """Predict the class of one or many images. All answers come from the same version."""
    live = context.live()
    model = live.model
    try:
        threshold = 0.0 if reject is None else model.threshold(reject)
    except UserError as error:
        raise api_error(error) from error
    uploads = await read_images(request, context.limits, name)
    top = min(top, len(model.classes) - len(model.retired))
    predictions = await context.predictor.predict(live, uploads, top=top, threshold=threshold)
    context.metrics.num_none += sum(prediction.rejected for prediction in predictions)
    content = {"version": live.version, "predictions": [_as_json(found) for found in predictions]}
    return JSONResponse(content)


def _as_json(prediction: Prediction) -> dict[str, Any]:
    classes = []
    for name, probability in zip(prediction.classes, prediction.probabilities, strict=True):
        classes.append({"name": name, "probability": round(probability, 6)})
    return {
        "name": prediction.file,
        "answer": prediction.answer,
        "is_none": prediction.rejected,
        "classes": classes,
    }
