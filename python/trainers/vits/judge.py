"""The judge: a small recogniser that hears how well speech can be understood. It learns from real recordings alone.

It is kept in a folder of its own, beside the corpus that it learnt from:

- `judge.json`: what it can hear, of which corpus it is, how well it hears it, and the digest of its weights;
- `judge.safetensors`: its weights.
"""

import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final, Self, final

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from trainers.media.folders import appearing, check_free, own_draft, writing
from trainers.progress import ConsumerChain, ReportConsumer
from trainers.vits.corpus import RecordedClip, SpeechCorpus
from trainers.vits.errors import JudgeError
from trainers.vits.measures import edit_distance
from trainers.vits.recogniser import STEPS, LetterNetwork, TrainingBatches, fit, real_mel, spelling
from trainers.vits.spectrum import FrameSettings

FOLDER: Final = "judge"
"""Where a prepared corpus keeps its judge."""
FACTS: Final = "judge.json"
WEIGHTS: Final = "judge.safetensors"
VERSION: Final = 1
SILENT: Final = ConsumerChain()
"""Progress that nobody sees."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpeechRecogniser:
    """A recogniser, and how well it hears real speech that it was not trained on.

    Attributes:
        network: with its weights; in evaluation mode.
        characters: what it can hear, in the order of its outputs.
        framing: of the spectrograms that it hears.
        corpus: the digest of the corpus that it learnt from.
        error_rate: of characters, on that corpus' held-out recordings; 0 or more.
    """

    network: LetterNetwork
    characters: str
    framing: FrameSettings
    corpus: str
    error_rate: float

    @torch.inference_mode()
    def transcribe(self, mel: Tensor) -> str:
        """What it hears: the likeliest letter of every frame, repetitions and blanks taken away.

        Args:
            mel: logarithms of mel bands, float32 [bands, frames], on the CPU.
        """
        if not mel.shape[1]:
            return ""
        likeliest: list[int] = self.network(mel[None], torch.tensor([mel.shape[1]]))[0].argmax(0).tolist()
        return "".join(self.characters[letter - 1] for letter, _ in groupby(likeliest) if letter)

    def save(self, folder: Path) -> None:
        """Write it into a folder, which appears whole or not at all; the same judge gives the same bytes.

        Raises:
            JudgeError: The folder exists, or cannot be written.
        """
        weights = save({name: tensor.contiguous() for name, tensor in self.network.state_dict().items()})
        facts = {
            "version": VERSION,
            "characters": self.characters,
            "framing": asdict(self.framing),
            "corpus": self.corpus,
            "error_rate": self.error_rate,
            "weights": sha256(weights).hexdigest(),
        }
        check_free(folder, JudgeError)
        with writing(folder, JudgeError), appearing(folder, own_draft(folder)) as draft:
            (draft / WEIGHTS).write_bytes(weights)
            (draft / FACTS).write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", "utf-8")
            for path in draft.iterdir():
                _flush(path)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            JudgeError: There is none, it is damaged, or of another version.
        """
        facts = _facts(folder)
        weights = _read(folder, WEIGHTS)
        match facts:
            case {
                "version": int(),
                "characters": str(characters),
                "framing": {"rate": int(rate), "hop": int(hop), "fft": int(fft), **other},
                "corpus": str(corpus),
                "error_rate": float(rate_of_errors),
                "weights": str(digest),
                **rest,
            } if not rest and not other and min(rate, hop, fft) > 0 and 0 <= rate_of_errors < float("inf"):
                if digest != sha256(weights).hexdigest():
                    raise _damaged(folder, f"{WEIGHTS} is not the file that {FACTS} speaks of")
                return cls(
                    network=_network(folder, characters, weights),
                    characters=characters,
                    framing=FrameSettings(rate, hop, fft),
                    corpus=corpus,
                    error_rate=rate_of_errors,
                )
            case _:
                raise _damaged(folder, f"{FACTS} does not say what it must")


def train_judge(
    corpus: SpeechCorpus, *, steps: int = STEPS, seed: int = 0, threads: int = 1, consume: ReportConsumer = SILENT
) -> SpeechRecogniser:
    """Train a recogniser on a corpus' training recordings, on the CPU: the same weights for the same seed and threads.

    There is nothing else that it could learn from: no synthesised speech can be given.

    Args:
        corpus: prepared recordings.
        steps: of the optimizer, 1 or more.
        seed: of its first weights, the order of the clips and the noise; 0 or more.
        threads: of the CPU.
        consume: progress.

    Raises:
        JudgeError: there are no texts to learn, or a clip has more letters than can be told apart in its frames.
        LoopError: the training failed.
    """
    characters = "".join(sorted({letter for clip in corpus.part("train") for letter in spelling(clip.text)}))
    if not characters:
        raise JudgeError(f"{corpus.folder} has no text with a letter to train a judge on; prepare clips with texts")
    with _threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = LetterNetwork(len(characters))
        fit(network, TrainingBatches(corpus, characters, seed), steps, consume)
        judge = SpeechRecogniser(
            network=network.eval(),
            characters=characters,
            framing=corpus.framing,
            corpus=corpus.digest,
            error_rate=0.0,
        )
        return replace(judge, error_rate=error_rate(judge, corpus, corpus.part("held_out")))


def error_rate(judge: SpeechRecogniser, corpus: SpeechCorpus, clips: Iterable[RecordedClip]) -> float:
    """Characters that it hears wrongly in real recordings, as a share of those that were said; 0 or more."""
    errors = letters = 0
    for clip in clips:
        said = spelling(clip.text)
        errors += edit_distance(judge.transcribe(real_mel(corpus, clip)), said)
        letters += len(said)
    return errors / max(1, letters)


def judge_of(corpus: SpeechCorpus, folder: Path | None = None, *, consume: ReportConsumer = SILENT) -> SpeechRecogniser:
    """The judge of a corpus: the one that is kept, or else one that is trained now and kept.

    Args:
        corpus: prepared recordings.
        folder: where it is kept; None for `judge` in the corpus' own.
        consume: progress of the training.

    Raises:
        JudgeError: The folder holds a damaged judge, or that of another corpus, or cannot be written; or there is
            nothing to train on.
        LoopError: The training failed.
    """
    place = folder or corpus.folder / FOLDER
    if not place.exists():
        _check_written(place)
        judge = train_judge(corpus, consume=consume)
        if not place.exists():  # else another process was faster, with the same
            judge.save(place)
        return judge
    judge = SpeechRecogniser.load(place)
    if judge.corpus != corpus.digest:
        raise JudgeError(
            f"{place} holds the judge of another corpus than {corpus.folder}; remove {place}, and one is trained anew"
        )
    return judge


def _facts(folder: Path) -> Mapping[str, object]:
    """What judge.json says, of this version."""
    try:
        found: object = json.loads(_read(folder, FACTS))
    except ValueError as error:
        raise _damaged(folder, f"{FACTS} is no JSON: {error}") from error
    match found:
        case {"version": int(version)} if version != VERSION:
            raise JudgeError(
                f"{folder} is a judge of version {version}, here {VERSION} is read; remove it, and one is trained anew"
            )
        case dict():
            return {str(key): value for key, value in found.items()}
        case _:
            raise _damaged(folder, f"{FACTS} is no object")


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error


def _network(folder: Path, characters: str, weights: bytes) -> LetterNetwork:
    """A recogniser of so many characters with these weights."""
    with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and then replaced
        network = LetterNetwork(len(characters))
    try:
        network.load_state_dict(load(weights))
    except (SafetensorError, RuntimeError) as error:
        raise _damaged(folder, f"{WEIGHTS} does not hold the weights of {len(characters)} characters") from error
    return network.eval()


def _damaged(folder: Path, problem: str) -> JudgeError:
    return JudgeError(f"judge {folder} is damaged: {problem}; remove {folder}, and one is trained anew")


def _check_written(folder: Path) -> None:
    """Refuse before the training a folder that cannot be written after it."""
    with writing(folder, JudgeError):
        own_draft(folder).rmdir()


def _flush(path: Path) -> None:
    """Have a file on the disk before its folder gets its name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def _threads(number: int) -> Generator[None]:
    """So many threads of torch inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
