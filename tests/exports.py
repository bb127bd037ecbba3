"""Writes `newcomer/cases/`: the same bars in the export formats of many programs, without using the reader.

The expected bars are in `plain.csv`: two stocks over the end of daylight-saving time and two days without trading.
Run `python tests/exports.py` after a change; a test compares the committed files with its output.
"""

import gzip
import io
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import polars as pl
from market import bokeh_panel

CASES: Final = Path(__file__).parent / "newcomer" / "cases"
NEW_YORK: Final = ZoneInfo("America/New_York")
TOKYO: Final = ZoneInfo("Asia/Tokyo")
FIELDS: Final = ("open", "high", "low", "close", "volume")


@dataclass(frozen=True, slots=True)
class Bar:
    """One day of one stock; prices in whole cents, so that every export can write them exactly."""

    symbol: str
    day: date
    open: float
    high: float
    low: float
    close: float
    volume: int
    adj_close: float

    @property
    def prices(self) -> tuple[str, ...]:
        return tuple(f"{price:.2f}" for price in (self.open, self.high, self.low, self.close))


def stocks() -> list[Bar]:
    """Bars of AAPL and MSFT from 2012-10-15 to 2012-11-30."""
    panel = bokeh_panel("AAPL", "MSFT").between(20121015, 20121130)
    days = [date(s // 10_000, s // 100 % 100, s % 100) for s in panel.sessions.tolist()]
    assert panel.adj_close is not None
    return [
        Bar(
            symbol,
            day,
            round(float(panel.open[row, at]), 2),
            round(float(panel.high[row, at]), 2),
            round(float(panel.low[row, at]), 2),
            round(float(panel.close[row, at]), 2),
            int(panel.volume[row, at]),
            round(float(panel.adj_close[row, at]), 2),
        )
        for row, symbol in enumerate(panel.symbols)
        for at, day in enumerate(days)
    ]


def coins() -> list[Bar]:
    """Bars of every day of the week, from 2024-01-01 on."""
    bars = []
    for at in range(40):
        close = 42_000.25 + 130.5 * ((at * 7) % 11) - 20.25 * (at % 5)
        bars.append(
            Bar(
                "BTCUSDT",
                date(2024, 1, 1) + timedelta(at),
                close - 15.5,
                close + 250.75,
                close - 310.5,
                close,
                31_000 + 7 * at,
                close,
            )
        )
    return bars


BARS: Final = stocks()
COINS: Final = coins()


def of(symbol: str) -> list[Bar]:
    return [bar for bar in BARS if bar.symbol == symbol]


def lines(header: str, rows: Sequence[Sequence[object]], sign: str = ",", end: str = "\n") -> str:
    return end.join([header, *(sign.join(str(cell) for cell in row) for row in rows)]) + end


def plain(bars: Sequence[Bar] = BARS, sign: str = ",", header: str = "symbol,date,open,high,low,close,volume") -> str:
    rows = [(bar.symbol, bar.day, *bar.prices, bar.volume) for bar in bars]
    return lines(header.replace(",", sign), rows, sign)


def german(text: str) -> str:
    """A number in German notation: 1234.5 as 1.234,5."""
    whole, _, part = text.partition(".")
    return f"{int(whole):,}".replace(",", ".") + ("," + part if part else "")


def german_excel() -> str:
    rows = [(bar.symbol, f"{bar.day:%d.%m.%Y}", *(p.replace(".", ",") for p in bar.prices), bar.volume) for bar in BARS]
    return lines("Symbol;Date;Open;High;Low;Close;Volume", rows, ";", "\r\n")


def midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def yfinance_history() -> str:
    rows = [(midnight(bar.day, NEW_YORK), *bar.prices, bar.volume, "0.0", "0.0") for bar in of("AAPL")]
    return lines("Date,Open,High,Low,Close,Volume,Dividends,Stock Splits", rows)


def yfinance_download() -> str:
    rows = [(bar.day, bar.prices[3], bar.prices[1], bar.prices[2], bar.prices[0], bar.volume) for bar in of("AAPL")]
    return lines("Price,Close,High,Low,Open,Volume\nTicker,AAPL,AAPL,AAPL,AAPL,AAPL\nDate,,,,,", rows)


def _pairs() -> Iterator[tuple[Bar, Bar]]:
    return zip(of("AAPL"), of("MSFT"), strict=True)


def yfinance_two() -> str:
    names = ("Adj Close", "Close", "High", "Low", "Open", "Volume")
    rows = []
    for pair in _pairs():
        columns = [
            [f"{bar.adj_close:.2f}" for bar in pair],
            *([bar.prices[at] for bar in pair] for at in (3, 1, 2, 0)),
            [bar.volume for bar in pair],
        ]
        rows.append((pair[0].day, *(cell for column in columns for cell in column)))
    first = ",".join(["Price", *(name for name in names for _ in range(2))])
    second = ",".join(["Ticker", *("AAPL", "MSFT") * 6])
    return lines(f"{first}\n{second}\nDate" + "," * 12, rows)


def yfinance_by_ticker() -> str:
    names = ("Open", "High", "Low", "Close", "Volume")
    rows = [(pair[0].day, *(cell for bar in pair for cell in (*bar.prices, bar.volume))) for pair in _pairs()]
    first = ",".join(["Ticker", *["AAPL"] * 5, *["MSFT"] * 5])
    return lines(f"{first}\nPrice,{','.join(names * 2)}\nDate" + "," * 10, rows)


def yahoo_page() -> str:
    rows: list[Sequence[object]] = [(bar.day, *bar.prices, f"{bar.adj_close:.2f}", bar.volume) for bar in of("AAPL")]
    rows.insert(10, ("2012-10-29", *["null"] * 6))
    return lines("Date,Open,High,Low,Close,Adj Close,Volume", rows)


def stooq_page() -> str:
    return lines("Date,Open,High,Low,Close,Volume", [(b.day, *b.prices, b.volume) for b in of("AAPL")], end="\r\n")


def stooq_bulk() -> str:
    header = "<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>"
    return lines(header, [("AAPL.US", "D", f"{b.day:%Y%m%d}", "000000", *b.prices, b.volume, 0) for b in of("AAPL")])


def alpaca() -> str:
    rows = [(b.symbol, midnight(b.day, NEW_YORK).astimezone(UTC), *b.prices, b.volume, 1000, b.prices[3]) for b in BARS]
    return lines("symbol,timestamp,open,high,low,close,volume,trade_count,vwap", rows)


def _epoch(bar: Bar, zone: ZoneInfo, a_second: int) -> int:
    return int(midnight(bar.day, zone).timestamp()) * a_second


def polygon() -> str:
    rows = [
        (b.volume, b.prices[3], b.prices[0], b.prices[3], b.prices[1], b.prices[2], _epoch(b, NEW_YORK, 1000), 99)
        for b in of("AAPL")
    ]
    return lines("v,vw,o,c,h,l,t,n", rows)


def polygon_flat_file() -> str:
    rows = [
        (b.symbol, b.volume, b.prices[0], b.prices[3], b.prices[1], b.prices[2], _epoch(b, NEW_YORK, 10**9), 99)
        for b in BARS
    ]
    return lines("ticker,volume,open,close,high,low,window_start,transactions", rows)


def _kline(bar: Bar, a_second: int) -> tuple[object, ...]:
    begin = _epoch(bar, ZoneInfo("UTC"), a_second)
    prices = (f"{float(price):.8f}" for price in bar.prices)
    return (begin, *prices, f"{bar.volume:.8f}", begin + 86_400 * a_second - 1, "1.0", 9, "1.0", "1.0", 0)


def binance() -> str:
    return "".join(",".join(map(str, _kline(bar, 1000))) + "\n" for bar in COINS)


def binance_with_header() -> str:
    names = ("open_time", *FIELDS, "close_time", "quote_volume", "count", "taker_buy_volume", "taker_buy_quote_volume")
    return lines(",".join((*names, "ignore")), [_kline(bar, 1_000_000) for bar in COINS])


def cryptodatadownload() -> str:
    rows = [
        (_epoch(b, ZoneInfo("UTC"), 1000), b.day, "BTCUSDT", *b.prices, b.volume, b.volume * 42_000, 9)
        for b in reversed(COINS)
    ]
    header = "Unix,Date,Symbol,Open,High,Low,Close,Volume BTC,Volume USDT,tradecount"
    return "https://www.CryptoDataDownload.com\n" + lines(header, rows)


def _rounded(volume: int) -> str:
    """A volume as investing.com writes it: millions with two decimals."""
    return f"{volume / 1e6:.2f}M"


def investing() -> str:
    rows = [
        (f'"{b.day:%m/%d/%Y}"', *(f'"{b.prices[at]}"' for at in (3, 0, 1, 2)), f'"{_rounded(b.volume)}"', '"0.10%"')
        for b in reversed(of("AAPL"))
    ]
    return lines('"Date","Price","Open","High","Low","Vol.","Change %"', rows)


def investing_elsewhere(header: str, date_form: str) -> str:
    """A non-English investing.com export: decimal commas, and the day first."""
    rows = [
        (
            f'"{b.day:{date_form}}"',
            *(f'"{german(b.prices[at])}"' for at in (3, 0, 1, 2)),
            f'"{_rounded(b.volume).replace(".", ",")}"',
            '"0,10%"',
        )
        for b in reversed(of("AAPL"))
    ]
    return lines(header, rows)


def investing_german() -> str:
    return investing_elsewhere('"Datum","Zuletzt","Eröffn.","Hoch","Tief","Vol.","+/- %"', "%d.%m.%Y")


def investing_french() -> str:
    return investing_elsewhere('"Date","Dernier","Ouv."," Plus Haut","Plus Bas","Vol.","Variation %"', "%d/%m/%Y")


def investing_italian() -> str:
    return investing_elsewhere('"Data","Ultimo","Apertura","Massimo","Minimo","Vol.","Var. %"', "%d.%m.%Y")


def investing_portuguese() -> str:
    return investing_elsewhere('"Data","Último","Abertura","Máxima","Mínima","Vol.","Var%"', "%d.%m.%Y")


def investing_spanish() -> str:
    return investing_elsewhere('"Fecha","Último","Apertura","Máximo","Mínimo","Vol.","% var."', "%d.%m.%Y")


def japanese() -> str:
    rows = [(f"{b.day:%Y/%m/%d}", *(f'"{float(p):,.2f}"' for p in b.prices), f'"{b.volume:,}"') for b in of("AAPL")]
    return lines("日付,始値,高値,安値,終値,出来高", rows)


def nasdaq() -> str:
    rows = [
        (f"{b.day:%m/%d/%Y}", f"${b.prices[3]}", b.volume, *(f"${b.prices[at]}" for at in (0, 1, 2)))
        for b in reversed(of("AAPL"))
    ]
    return lines("Date,Close/Last,Volume,Open,High,Low", rows)


def marketwatch() -> str:
    rows = [
        (f"{b.day:%m/%d/%Y}", *(f'"{float(p):,.2f}"' for p in b.prices), f'"{b.volume:,}"')
        for b in reversed(of("AAPL"))
    ]
    return lines("Date,Open,High,Low,Close,Volume", rows)


def alpha_vantage() -> str:
    rows = [(b.day, *b.prices, f"{b.adj_close:.2f}", b.volume, "0.0000", "1.0") for b in reversed(of("AAPL"))]
    return lines("timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient", rows)


def tiingo() -> str:
    rows = [
        (
            f"{b.day}T00:00:00.000Z",
            b.prices[3],
            b.prices[1],
            b.prices[2],
            b.prices[0],
            b.volume,
            f"{b.adj_close:.2f}",
            1,
            1,
            1,
            1,
            "0.0",
            "1.0",
        )
        for b in of("AAPL")
    ]
    return lines("date,close,high,low,open,volume,adjClose,adjHigh,adjLow,adjOpen,adjVolume,divCash,splitFactor", rows)


def quandl() -> str:
    rows = [(b.symbol, b.day, *b.prices, f"{b.volume}.0", "0.0", "1.0", 1, 1, 1, f"{b.adj_close:.2f}", 1) for b in BARS]
    return lines(
        "ticker,date,open,high,low,close,volume,ex-dividend,split_ratio,adj_open,adj_high,adj_low,adj_close,adj_volume",
        rows,
    )


def eodhd() -> str:
    rows = [(b.day, *b.prices, f"{b.adj_close:.2f}", b.volume) for b in of("AAPL")]
    return lines("Date,Open,High,Low,Close,Adjusted_close,Volume", rows)


def metatrader() -> str:
    header = "<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>"
    return lines(header, [(f"{b.day:%Y.%m.%d}", *b.prices, 77, b.volume, 1) for b in of("AAPL")], "\t", "\r\n")


def tradingview() -> str:
    rows = [(_epoch(b, NEW_YORK, 1) + 34_200, *b.prices, b.volume) for b in of("AAPL")]
    return lines("time,open,high,low,close,Volume", rows)


def ariva() -> str:
    rows = [
        (b.day, *(p.replace(".", ",") for p in b.prices), german(str(b.volume)), german(str(b.volume * 500)))
        for b in reversed(of("AAPL"))
    ]
    return lines("Datum;Erster;Hoch;Tief;Schlusskurs;Stuecke;Volumen", rows, ";")


def adjusted_only() -> str:
    rows = [(b.symbol, b.day, *b.prices, b.volume) for b in BARS]
    return lines("symbol,date,Adj Open,Adj High,Adj Low,Adj Close,Adj Volume", rows)


def day_first() -> str:
    return lines(
        "symbol,date,open,high,low,close,volume", [(b.symbol, f"{b.day:%d/%m/%Y}", *b.prices, b.volume) for b in BARS]
    )


def named_months() -> str:
    rows = [(b.symbol, f"{b.day:%d-%b-%Y}", *b.prices, b.volume) for b in BARS]
    return lines("symbol,date,open,high,low,close,volume", rows)


def unsorted() -> str:
    return plain([BARS[(7 * at) % len(BARS)] for at in range(len(BARS))])


def equal_duplicates() -> str:
    return plain([*BARS[:5], BARS[2], *BARS[5:], BARS[3]])


def tokyo(begin: int = 0, end: int | None = None) -> str:
    """Dates as UTC times of midnight in Tokyo, which fall on the day before."""
    rows = [(midnight(b.day, TOKYO).astimezone(UTC).isoformat(), *b.prices, b.volume) for b in of("AAPL")[begin:end]]
    return lines("date,open,high,low,close,volume", rows)


def excel() -> bytes:
    """A minimal workbook with days as Excel numbers them."""
    rows = [["symbol", "date", *FIELDS], *([b.symbol, b.day, *b.prices, b.volume] for b in BARS)]
    body = "".join(f"<row>{''.join(_cell(cell) for cell in row)}</row>" for row in rows)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    types = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{types}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{types}.worksheet+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{types}.styles+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="bars" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships">'
        f'<Relationship Id="r1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="r2" Type="{office}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs count="2"><xf numFmtId="0"/>'
        '<xf numFmtId="14" applyNumberFormat="1"/></cellXfs></styleSheet>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>',
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        for name, text in parts.items():
            book.writestr(zipfile.ZipInfo(name), f'<?xml version="1.0" encoding="UTF-8"?>{text}', zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, date):
        return f'<c s="1"><v>{(value - date(1899, 12, 30)).days}</v></c>'
    text = str(value)
    return f"<c><v>{text}</v></c>" if text[0].isdigit() else f'<c t="inlineStr"><is><t>{text}</t></is></c>'


def parquet() -> bytes:
    """A table as pandas writes it, indexed by midnight in New York."""
    frame = pl.DataFrame(
        {
            "Date": [midnight(bar.day, NEW_YORK) for bar in of("AAPL")],
            **{name.capitalize(): [float(getattr(bar, name)) for bar in of("AAPL")] for name in FIELDS},
        }
    ).with_columns(pl.col("Date").dt.convert_time_zone("America/New_York"))
    file = io.BytesIO()
    frame.write_parquet(file, compression="uncompressed", statistics=False)
    return file.getvalue()


def weekly() -> str:
    return plain([bar for bar in of("AAPL") if bar.day.weekday() == 4])


def within_the_day() -> str:
    rows = [
        (f"{bar.day} {hour:02}:30:00", *bar.prices, bar.volume + hour)
        for bar in of("AAPL")[:6]
        for hour in range(9, 16)
    ]
    return lines("date,open,high,low,close,volume", rows)


def short_dates(form: str) -> str:
    rows = [
        (f"{bar.day:{form}}", *bar.prices, bar.volume)
        for bar in of("AAPL")
        if bar.day.month == 11 and bar.day.day <= 12
    ]
    return lines("date,open,high,low,close,volume", rows)


def mixed_dates() -> str:
    rows = [
        (f"{b.day:%d/%m/%Y}" if at % 2 else f"{b.day:%m/%d/%Y}", *b.prices, b.volume) for at, b in enumerate(of("AAPL"))
    ]
    return lines("date,open,high,low,close,volume", rows)


def thousandths() -> str:
    """Prices with exactly three decimals, so that the point is ambiguous, and volumes below a thousand."""
    rows = [
        (
            b.day,
            *(f"{int(float(p)) // 100}.{int(float(p)) % 1000:03}" for p in ("612.34", "618.00", "605.00", "611.00")),
            77,
        )
        for b in of("AAPL")
    ]
    return lines("date;open;high;low;close;volume", rows, ";")


def volume_in_thousands() -> str:
    rows = [(b.day, *b.prices, b.volume // 1000) for b in of("AAPL")]
    return lines("date,open,high,low,close,Volume (000)", rows)


def different_duplicates() -> str:
    again = of("AAPL")[4]
    other = Bar("AAPL", again.day, again.open, again.high, again.low, again.open, again.volume, again.adj_close)
    return plain([*BARS, other])


def closes_only() -> str:
    return lines("Date,AAPL,MSFT", [(pair[0].day, pair[0].prices[3], pair[1].prices[3]) for pair in _pairs()])


def stacked_by_code() -> str:
    return plain(header="code,date,open,high,low,close,volume")


def without_volume() -> str:
    return lines("symbol,date,open,high,low,close", [(b.symbol, b.day, *b.prices) for b in BARS])


def half_empty() -> str:
    return plain(of("AAPL")).replace(f",{of('AAPL')[3].prices[3]},", ",,", 1)


def footer() -> str:
    return plain() + "Source: an exchange\n"


def column_twice() -> str:
    return lines(
        "date,open,high,low,close,close,volume", [(b.day, *b.prices, b.prices[3], b.volume) for b in of("AAPL")]
    )


def without_header() -> str:
    return lines("", [(b.day, *b.prices, b.volume) for b in of("AAPL")]).lstrip("\n")


def web_page() -> str:
    return (
        "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in, then download.</body></html>\n"
    )


def latin() -> bytes:
    return (
        plain()
        .replace("symbol,date", "symbol,Größe,date")
        .replace("\nAAPL,", "\nAAPL,groß,")
        .replace("\nMSFT,", "\nMSFT,groß,")
        .encode("latin-1")
    )


EXPORTS: Final[dict[str, Callable[[], str | bytes]]] = {
    "plain.csv": plain,
    "coins.csv": lambda: plain(COINS),
    "bom.csv": lambda: plain().encode("utf-8-sig"),
    "utf16.csv": lambda: plain().encode("utf-16"),
    "utf16_tabs.txt": lambda: b"\xff\xfe" + plain(sign="\t").encode("utf-16-le"),
    "tabs.txt": lambda: plain(sign="\t"),
    "bars.csv.gz": lambda: gzip.compress(plain().encode(), mtime=0),
    "german_excel.csv": german_excel,
    "excel.xlsx": excel,
    "newest_first.csv": lambda: plain(BARS[::-1]),
    "unsorted.csv": unsorted,
    "equal_duplicates.csv": equal_duplicates,
    "yfinance_history/AAPL.csv": yfinance_history,
    "yfinance_download.csv": yfinance_download,
    "yfinance_two.csv": yfinance_two,
    "yfinance_by_ticker.csv": yfinance_by_ticker,
    "yahoo_page/AAPL.csv": yahoo_page,
    "stooq_page/AAPL.csv": stooq_page,
    "stooq_bulk/aapl.us.txt": stooq_bulk,
    "alpaca.csv": alpaca,
    "polygon/AAPL.csv": polygon,
    "polygon_flat_file.csv.gz": lambda: gzip.compress(polygon_flat_file().encode(), mtime=0),
    "binance/BTCUSDT-1d-2024-01.csv": binance,
    "binance_with_header/BTCUSDT.csv": binance_with_header,
    "cryptodatadownload.csv": cryptodatadownload,
    "investing/AAPL Historical Data.csv": investing,
    "investing_german/AAPL.csv": investing_german,
    "investing_french/AAPL.csv": investing_french,
    "investing_italian/AAPL.csv": investing_italian,
    "investing_portuguese/AAPL.csv": investing_portuguese,
    "investing_spanish/AAPL.csv": investing_spanish,
    "japanese/AAPL.csv": japanese,
    "nasdaq/AAPL.csv": nasdaq,
    "marketwatch/AAPL.csv": marketwatch,
    "alpha_vantage/AAPL.csv": alpha_vantage,
    "tiingo/AAPL.csv": tiingo,
    "quandl.csv": quandl,
    "eodhd/AAPL.csv": eodhd,
    "metatrader/AAPL.csv": metatrader,
    "tradingview/AAPL.csv": tradingview,
    "ariva/AAPL.csv": ariva,
    "adjusted_only.csv": adjusted_only,
    "day_first.csv": day_first,
    "named_months.csv": named_months,
    "tokyo/AAPL.csv": tokyo,
    "parquet/AAPL.parquet": parquet,
}
MISTAKES: Final[dict[str, Callable[[], str | bytes]]] = {
    "short_dates.csv": lambda: short_dates("%m/%d/%Y"),
    "short_years.csv": lambda: short_dates("%d/%m/%y"),
    "mixed_dates.csv": mixed_dates,
    "thousandths.csv": thousandths,
    "tokyo_two_days.csv": lambda: tokyo(1, 3),
    "volume_in_thousands.csv": volume_in_thousands,
    "different_duplicates.csv": different_duplicates,
    "within_the_day.csv": within_the_day,
    "weekly.csv": weekly,
    "closes_only.csv": closes_only,
    "stacked_by_code.csv": stacked_by_code,
    "without_volume.csv": without_volume,
    "half_empty.csv": half_empty,
    "footer.csv": footer,
    "column_twice.csv": column_twice,
    "without_header.csv": without_header,
    "web_page.csv": web_page,
    "latin.csv": latin,
    "old_excel.xls": lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(504),
    "cut_off.csv.gz": lambda: gzip.compress(plain().encode(), mtime=0)[:-40],
}


def content(make: Callable[[], str | bytes]) -> bytes:
    made = make()
    return made.encode() if isinstance(made, str) else made


def write(folder: Path = CASES) -> None:
    for part, cases in (("exports", EXPORTS), ("mistakes", MISTAKES)):
        for name, make in cases.items():
            path = folder / part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content(make))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else CASES)
