"""Templates of pages: those here, and those of the packages whose pages stand on them."""

from typing import TYPE_CHECKING, Final

from predictor.errors import MissingPackageError
from predictor.report import texts

if TYPE_CHECKING:
    from jinja2 import Template

_SUFFIX: Final = ".html.j2"


def page_template(package: str, name: str) -> "Template":
    """The template `name` beside the modules of `package`; it refers to the common ones as `report/base.html.j2`.

    All that a template is given is escaped, and a name that it does not know is an error.

    Raises:
        MissingPackageError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
    except ModuleNotFoundError as error:
        raise MissingPackageError.of("jinja2", "report", "a report") from error
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PrefixLoader({"report": PackageLoader("predictor.report", "."), "own": PackageLoader(package, ".")}),
    )
    environment.filters |= {
        "capital": texts.capital,
        "iso": texts.iso,
        "level": texts.level,
        "sessions": texts.sessions,
        "percent": texts.percent,
        "signed": texts.signed,
        "signed_percent": texts.signed_percent,
        "unbroken": texts.unbroken,
    }
    return environment.get_template(f"own/{name}{_SUFFIX}")
