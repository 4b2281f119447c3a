"""A run as the page shows it: a scene, and each command with its answer and what it left.

    answer   ["same", line]     as recorded
             ["new", line]      not in the recorded answer
             ["gone", line]     only in the recorded answer

A recorded answer belongs to a step, which may have several commands. The lines of the step are
compared, and a line that is gone is shown with the command at whose place it stood. A step whose
answer was never recorded has no differences.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from replication.errors import UnderstudyError
from scenarios.checkers import InvariantViolatedError
from scenarios.story.report import Recording, scene_of
from scenarios.story.report.recording import CarriedOut
from scenarios.story.script import Script, ScriptError

SAME, NEW, GONE = "same", "new", "gone"
MOST_MESSAGE = 2000
# The messages between nodes are left out: most of a scene's bytes, which the report of a story draws.
SHOWN = ("title", "seed", "trace_hash", "virtual_seconds", "lanes", "partitions", "marks", "logs")

Compared: TypeAlias = list[tuple[str, str]]
Facts: TypeAlias = Mapping[str, Any]


def lesson_of(script: Script, recording: Recording, error: BaseException | None) -> Facts:
    """Return what the page shows of a run, which `error` may have ended."""
    lesson: dict[str, Any] = {"commands": [], "wrong": None, "differs": False}
    if recording.world is not None:
        # A run that a signal ended has not ended its recording.
        recording.entries = recording.entries or list(recording.world.trace.entries)
        scene = scene_of(recording, title=script.title, passages=())
        lesson |= {name: getattr(scene, name) for name in SHOWN}
        lesson["commands"] = _commands(script, recording)
        lesson["differs"] = any(
            kind != SAME for command in lesson["commands"] for kind, _ in command["answer"]
        )
    if error is not None:
        lesson["wrong"] = {"line": _line_of(error, recording), "message": message_of(error)}
    return lesson


def message_of(error: BaseException) -> str:
    """Return an error in one line."""
    if isinstance(error, InvariantViolatedError):
        text = f"{error.rule}: {error.what}"
    elif isinstance(error, UnderstudyError):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    line = " ".join(text.split())
    return line if len(line) <= MOST_MESSAGE else f"{line[:MOST_MESSAGE]} ..."


def _line_of(error: BaseException, recording: Recording) -> int | None:
    if isinstance(error, ScriptError) and error.line is not None:
        return error.line
    return recording.commands[-1].number if recording.commands else None


def _commands(script: Script, recording: Recording) -> list[Facts]:
    carried_out = {each.number: each for each in recording.commands}
    found: list[Facts] = []
    for words, step in script.passages:
        numbers = range(step.line, step.line + len(step.commands))
        begun = [carried_out[number] for number in numbers if number in carried_out]
        answers = [each.answer for each in begun if each.answer is not None]
        is_whole = len(answers) == len(step.commands)
        compared = compare(step.answer, answers, is_whole=is_whole)
        for index, each in enumerate(begun):
            answer = next(compared) if each.answer is not None else []
            prose = "" if index else words
            found.append(_command(each, answer, prose, recording))
    return found


def _command(command: CarriedOut, answer: Compared, prose: str, recording: Recording) -> Facts:
    is_answered = command.answer is not None
    return {
        "at": command.at,
        "line": command.line,
        "number": command.number,
        "prose": prose,
        "answered": is_answered,
        "answer": answer,
        "logs": command.standings if is_answered else len(recording.standings),
        "marks": command.entries if is_answered else len(recording.entries),
    }


def compare(
    recorded: Sequence[str], answers: Iterable[Sequence[str]], *, is_whole: bool
) -> Iterator[Compared]:
    """Yield the answer of each command, compared with the recorded answer of their step.

    Unless the step `is_whole`, the end of the recorded answer is not missed.
    """
    answers = list(answers)
    actual = [line for answer in answers for line in answer]
    shown: list[Compared] = [[(SAME, line)] for line in actual]
    matcher = difflib.SequenceMatcher(None, recorded, actual, autojunk=False)
    nowhere: Compared = []
    for tag, begin, end, first, last in matcher.get_opcodes() if recorded else ():
        if tag == "equal":
            continue
        shown[first:last] = [[(NEW, line)] for line in actual[first:last]]
        is_missed = is_whole or last < len(actual)
        gone = [(GONE, line) for line in recorded[begin:end]] if is_missed else []
        if first < last or (first == 0 and actual):
            shown[first] = gone + shown[first]
        elif actual:
            shown[first - 1] += gone
        else:
            nowhere = gone
    left = iter(shown)
    for index, answer in enumerate(answers):
        lines = [each for _ in answer for each in next(left)]
        yield lines + (nowhere if index == len(answers) - 1 else [])
