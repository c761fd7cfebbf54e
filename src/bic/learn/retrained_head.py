"""The head of fc-retrain: trained afresh on the frozen features of all classes' data."""

from torch import Tensor, nn

from bic.compute.seeding import seeded
from bic.data.augmentation import Augmentation
from bic.data.batches import Batches
from bic.data.images import ImageSet
from bic.data.preprocessing import Preprocessing
from bic.learn.lesson import Lesson
from bic.learn.losses import Losses, classification
from bic.learn.train import Training, fit
from bic.model.answers import RetrainedHead
from bic.model.features import extract
from bic.model.model import Model


def retrained_head(lesson: Lesson, model: Model) -> RetrainedHead:
    """A fresh head for evaluation only. The next step's teacher uses the model's own head."""
    everything = lesson.step.everything
    assert everything is not None
    num_features = model.network.num_features
    vectors, readable = extract(model.network, everything, lesson.progress)
    features = ImageSet(
        labels=everything.labels[readable],
        preprocessing=Preprocessing(channels=num_features),
        pixels=vectors,
    )
    recipe = lesson.learning.recipe.model_copy(update={"precision": "float32"})
    address = (lesson.learning.seed, "head", lesson.step.number)
    with seeded(*address):
        head = nn.Linear(num_features, len(model.classes))

    def loss(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Losses:
        return {"classification": classification(logits, labels)}

    title = f"{lesson.title}, head on all data"
    with lesson.progress.task(title, recipe.epochs * len(features)) as task:
        batches = Batches(
            features, address, batch_size=recipe.batch_size, augmentation=Augmentation()
        )
        fit(Training.start(head, recipe), batches, loss, recipe, task=task)
    answer = RetrainedHead(head.weight.detach(), head.bias.detach())
    answer.to(lesson.device)
    return answer
