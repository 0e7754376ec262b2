"""What a hostile case is: the bytes it consists of, and exactly what the tools must say about them."""
import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class Finding:
    """One error or warning: its kind, a part of its message, the tensor it names and the end of the file's name."""
    kind: str
    message: str
    tensor: typing.Optional[str] = None
    file: typing.Optional[str] = None
    severity: str = "error"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Exit codes of the verbs, and every finding of `verify` (in any order)."""
    verify: int
    tensors: int
    digest: int
    findings: tuple = ()
    has_tensors: bool = True  # else there is nothing to digest


@dataclasses.dataclass(frozen=True)
class Case:
    name: str  # "<class>/<what>"
    attack: str
    write: typing.Callable  # write(folder) makes the files and returns the path to inspect
    outcome: Outcome
    command: typing.Optional[tuple] = None  # another program's arguments in place of the three verbs; "@" is the path
    seconds: int = 10  # CPU time that must do

    @property
    def group(self):
        return self.name.split("/")[0]


def refused(kind, message, *, tensor=None, file=None, also=()):
    """Not opened by any verb."""
    return Outcome(3, 3, 3, (Finding(kind, message, tensor, file), *also))


def damaged(kind, message, *, tensor=None, file=None, digest=3, also=()):
    """Listed, reported, and no tensor that is affected is delivered."""
    return Outcome(1, 0, digest, (Finding(kind, message, tensor, file), *also))


def not_understood(message, *, tensor=None, file=None, digest=3):
    """Listed, but of a kind that is not known: not delivered, and not called damaged."""
    return Outcome(3, 0, digest, (Finding("unsupported", message, tensor, file),))


def warned(kind, message, *, tensor=None, file=None, also=()):
    """Read with a warning: nothing of it can make a tensor wrong."""
    return Outcome(0, 0, 0, (Finding(kind, message, tensor, file, "warning"), *also))


def warning(kind, message, *, tensor=None, file=None):
    return Finding(kind, message, tensor, file, "warning")


def error(kind, message, *, tensor=None, file=None):
    return Finding(kind, message, tensor, file)


HARMLESS = Outcome(0, 0, 0)


def without_tensors(outcome=HARMLESS):
    """The same where no tensor is listed: the hash of nothing would say nothing, so it is refused."""
    return dataclasses.replace(outcome, digest=3, has_tensors=False)


def lost_file(message, *, tensor, also=()):
    """A file that is not there: no verb calls the list of what is left a whole one."""
    return Outcome(1, 1, 3, (Finding("missing_file", message, tensor), *also))


def one_file(name, data):
    """A case of one file. `data`: bytes, or a function that makes them (large ones are not kept)."""
    def write(folder):
        path = folder / name
        path.write_bytes(data() if callable(data) else data)
        return path
    return write


class Group:
    """Collects the cases of one class."""

    def __init__(self, group):
        self.group = group
        self.cases = []

    def add(self, name, attack, write, outcome, **options):
        self.cases.append(Case(f"{self.group}/{name}", attack, write, outcome, **options))
