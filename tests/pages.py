"""Parses an HTML page: its texts, its numbers, and the resources that it would load."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script>"
_SILENT = (["script"], ["style"])


@dataclass
class Page(HTMLParser):
    """A page's texts, machine-readable numbers and references."""

    numbers: list[float] = field(default_factory=list)
    text: str = ""
    tags: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.numbers += [float(value) for name, value in attrs if tag == "data" and name == "value" and value]
        self.references += [value or "" for name, value in attrs if name in {"src", "href", "action", "srcset", "data"}]

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] not in _SILENT:
            self.text += data

    @property
    def words(self) -> str:
        """The text with whitespace collapsed."""
        return " ".join(self.text.split())


def page_of(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


def assert_loads_nothing(text: str) -> None:
    """The page references nothing external, and its content policy forbids it."""
    page = page_of(text)
    assert page.references == []
    assert not {"link", "iframe", "object", "embed", "img", "form", "base"} & set(page.tags)
    assert "default-src 'none'" in text
    assert "cdn.plot.ly/plotly" not in text.split("<body>")[1]


def assert_holds_all(text: str) -> None:
    """Sounds and images are embedded, and no script runs."""
    page = page_of(text)
    assert all(one.startswith("data:") for one in page.references)
    assert not {"link", "iframe", "object", "embed", "form", "base", "script"} & set(page.tags)
    assert "default-src 'none'" in text
