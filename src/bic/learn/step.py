"""How one step is learned: split → stage 1 → stage 2 → memory. The same for every method."""

from collections import deque

from bic.data.batches import plain_batches
from bic.data.decode_pool import decode_all
from bic.data.images import ImageSet, join
from bic.learn.exact_head import check_room, exact_head
from bic.learn.exemplars import remember
from bic.learn.lesson import Learned, Lesson
from bic.learn.memory import Memory
from bic.learn.retrained_head import retrained_head
from bic.learn.stage1 import grown, train_network
from bic.learn.stage2 import corrected_answer, head_and_means, means_of
from bic.learn.teacher import Teacher
from bic.model.answers import Answer, NearestMean
from bic.model.model import Model
from bic.randomness import generator


def learn_step(lesson: Lesson, before: Model | None, memory: Memory) -> tuple[Model, Learned]:
    """Learn one step. Returns the new model; `memory` is changed in place, `before` is not.

    `before` is the model of the previous step, None in the first step.
    """
    method = lesson.method
    step = lesson.step
    trained, held_out = memory.split(step.train, lesson.draws("held out"), step.learned_before)
    new = step.train.select(trained)
    new_held_out = step.train.select(held_out)
    if lesson.resume is None:
        _check_readable(new_held_out)
    most_exemplars = max((len(kept.train) for kept in memory.classes.values()), default=0)
    if step.learned_before is not None:  # exemplars among them must not be trained on twice
        memory.drop_trained(new)
    all_held_out = join([memory.held_out_images(), new_held_out], decode=decode_all)
    is_frozen = before is not None or lesson.learning.recipe.frozen
    is_trained = not (method.trains_once and is_frozen)
    train = join([new, memory.train_images()], decode=decode_all) if is_trained else new
    if method.sees_old_data == "network":
        assert step.everything is not None
        train = step.everything

    teacher = None
    if before is not None and method.uses_teacher:
        is_corrected = lesson.method_setting("corrected_teacher", True)
        correction = before.answer.teacher_correction if is_corrected else None
        teacher = Teacher(before.network, correction)
    model = grown(lesson, before, train)
    if method.answer == "ridge":
        check_room(lesson, model)
    with lesson.timed("stage1"):
        if is_trained:
            train_network(
                lesson,
                model,
                memory,
                train=train,
                new=new,
                most_exemplars=most_exemplars,
                before=before,
                teacher=teacher,
            )
    with lesson.timed("stage2"):
        if method.corrects and before is not None and teacher is not None:
            model.answer = corrected_answer(
                lesson, model, before=before, teacher=teacher, train=train, held_out=all_held_out
            )
    with lesson.timed("memory"):
        if method.keeps_exemplars:
            remember(lesson, model, memory, new=new, held_out=held_out)
        model.answer = _final_answer(lesson, model, memory, before, new, all_held_out)
        memory.release(generator(lesson.learning.seed, "who holds out"))
    return model, Learned(len(train), len(all_held_out), len(memory), lesson.seconds, held_out)


def _check_readable(images: ImageSet) -> None:
    """Decode all images once: a broken held-out image must be found before training starts."""
    if images.is_decoded:
        deque(plain_batches(images), maxlen=0)


def _final_answer(
    lesson: Lesson,
    model: Model,
    memory: Memory,
    before: Model | None,
    new: ImageSet,
    held_out: ImageSet,
) -> Answer:
    """The answer of a method that uses more than the head; otherwise the answer that there is."""
    if lesson.method.sees_old_data == "head":
        return retrained_head(lesson, model)
    if lesson.method.answer == "nearest mean":
        return NearestMean(means_of(lesson, model, memory.train_images()))
    if lesson.method.answer == "head and means":
        return head_and_means(lesson, model, memory, before=before, held_out=held_out)
    if lesson.method.answer == "ridge":
        return exact_head(lesson, model, memory, before=before, new=new, held_out=held_out)
    return model.answer
