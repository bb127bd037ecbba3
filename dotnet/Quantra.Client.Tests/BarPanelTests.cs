using System.Diagnostics;
using System.Globalization;
using System.Text;

namespace Quantra.Client.Tests;

/// <summary>Reading bars.</summary>
public sealed class BarPanelTests : IDisposable
{
    private static readonly string Three = "symbol,date,open,high,low,close,volume,adj_close\n" + string.Concat(
        from symbol in Enumerable.Range(1, 3)
        from day in Enumerable.Range(1, 3)
        select $"{(char)('@' + symbol)},2013-12-{28 + day},1,1,1,{symbol}{day},1,{symbol}{day}.5\n");

    private readonly DirectoryInfo _folder = Directory.CreateTempSubdirectory("quantra-csv-");

    public void Dispose() => _folder.Delete(recursive: true);

    [Fact]
    public void A_file_of_one_symbol_is_named_after_the_file()
    {
        var panel = Read("date,open,high,low,close,volume\n2013-12-30,1,2,0.5,1.5,100\n20131231,1.5,2.5,1,2,\n");
        Assert.Equal(["BARS"], panel.Symbols);
        Assert.Equal([new DateOnly(2013, 12, 30), new DateOnly(2013, 12, 31)], panel.Sessions.ToArray());
        Assert.Equal([1.5, 2], panel.Close.ToArray());
        Assert.True(double.IsNaN(panel.Volume.Span[1]));
        Assert.True(panel.AdjustedClose.IsEmpty);
    }

    [Fact]
    public void Headers_may_be_in_any_case_and_order_and_cells_quoted()
    {
        var panel = Read("Close,VOLUME,Date,Low,High,Open,Adj Close,Symbol,note\n4,5,2013-12-31,1,3,2,0.4,\"A,B\",\"say \"\"hi\"\"\"\n");
        Assert.Equal(["A,B"], panel.Symbols);
        var columns = new[] { panel.Open, panel.High, panel.Low, panel.Close, panel.Volume, panel.AdjustedClose };
        Assert.Equal([2, 3, 1, 4, 5, 0.4], columns.Select(column => column.Span[0]));
    }

    [Fact]
    public void A_symbol_without_a_row_on_a_day_has_no_bar_there()
    {
        var panel = Read(
            "symbol,date,open,high,low,close,volume\nA,2013-12-30,1,1,1,1,1\nB,2013-12-30,2,2,2,2,2\nA,2013-12-31,3,3,3,3,3\n");
        Assert.Equal(["A", "B"], panel.Symbols);
        Assert.Equal([1, 3, 2, double.NaN], panel.Close.ToArray());
        Assert.Equal([2, double.NaN], panel.Select("B").Open.ToArray());
    }

    [Theory]
    [InlineData("utf-8", false)]
    [InlineData("utf-8", true)]
    [InlineData("utf-16", true)]
    [InlineData("utf-16BE", true)]
    public void Files_are_read_in_the_encodings_that_Windows_writes(string encoding, bool mark)
    {
        const string Text = "symbol,date,open,high,low,close,volume\nMünchener,2013-12-30,1,2,0.5,1.5,100\n";
        var path = Path.Combine(_folder.FullName, "bars.csv");
        var bytes = Encoding.GetEncoding(encoding).GetBytes((mark ? "\ufeff" : "") + Text);
        File.WriteAllBytes(path, bytes);
        var panel = BarPanel.ReadCsv(path);
        Assert.Equal(("Münchener", 1.5), (Assert.Single(panel.Symbols), panel.Close.Span[0]));
    }

    [Theory]
    [InlineData("\n", true)]
    [InlineData("\r\n", true)]
    [InlineData("\r", true)]
    [InlineData("\r\n", false)]
    public void All_line_ends_are_read_and_empty_lines_are_skipped(string end, bool isLastEnded)
    {
        string[] lines = ["date,open,high,low,close,volume", "", "20131230,1,1,1,1,1", "", "20131231,1,1,1,2,\"3\""];
        var panel = Read(string.Join(end, lines) + (isLastEnded ? end : ""));
        Assert.Equal([1, 2], panel.Close.ToArray());
        Assert.Equal([1, 3], panel.Volume.ToArray());
        var failure = Assert.Throws<QuantraException>(() => Read(string.Join(end, [.. lines, "x,1,1,1,1,1"])));
        Assert.Contains("row 5 after the header", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void A_long_file_is_read_in_any_row_order(bool byDay)
    {
        var (symbols, days) = (Enumerable.Range(0, 7).ToArray(), Enumerable.Range(0, 3000).ToArray());
        var rows = byDay
            ? from day in days from symbol in symbols where (day + symbol) % 5 > 0 select (symbol, day)
            : from symbol in symbols from day in days where (day + symbol) % 5 > 0 select (symbol, day);
        var first = new DateOnly(2000, 1, 1);
        var text = "symbol,date,open,high,low,close,volume,note\n" + string.Concat(rows.Select(row =>
            $"S{row.symbol},{first.AddDays(row.day):yyyy-MM-dd},1,1,1,{row.symbol}.{row.day:d4},1,{new string('x', row.day % 40)}\n"));
        var panel = Read(text);
        Assert.Equal(days.Select(first.AddDays), panel.Sessions.ToArray());
        Assert.Equal(symbols.Select(symbol => $"S{symbol}").Order(), panel.Symbols.Order());
        foreach (var symbol in symbols)
        {
            var expected = days.Select(day => (day + symbol) % 5 > 0 ? ((10_000 * symbol) + day) / 10_000.0 : double.NaN);
            Assert.Equal(expected.Select(BitConverter.DoubleToInt64Bits), Bits(panel.Select($"S{symbol}").Close));
        }
    }

    [Fact]
    public void A_line_can_be_longer_than_the_buffer()
    {
        var note = new string('n', 300_000);
        var panel = Read($"date,note,open,high,low,close,volume\n20131230,{note},1,1,1,1,1\n20131231,\"{note},\",1,1,1,2,1\n");
        Assert.Equal([1, 2], panel.Close.ToArray());
    }

    [Fact]
    public void Parsed_numbers_equal_the_frameworks_to_the_last_bit()
    {
        string[] odd = ["-0", "0.1", "1e-5", "+1.5", " 2.5 ", ".5", "5.", "9007199254740993", "123456789012345678901", "nan", "-1e400", "0.00000000000000000000001"];
        var digits = Enumerable.Range(1, 5000).Select(row => ((ulong)row * 6364136223846793005UL >> (row % 60)).ToString());
        string[] cells = [.. odd, .. digits.Select((text, row) => text.Insert(row % (text.Length + 1), "."))];
        var lines = cells.Select((cell, row) => $"{new DateOnly(2000, 1, 1).AddDays(row):yyyyMMdd},1,1,1,{cell},1");
        var panel = Read("date,open,high,low,close,volume\n" + string.Join('\n', lines));
        var expected = cells.Select(cell => double.Parse(cell, NumberStyles.Float, CultureInfo.InvariantCulture));
        Assert.Equal(expected.Select(BitConverter.DoubleToInt64Bits), Bits(panel.Close));
    }

    [Fact]
    public void A_file_open_in_Excel_is_read_and_a_locked_one_is_rejected()
    {
        var expected = Read(Three);
        var path = Path.Combine(_folder.FullName, "bars.csv");
        using (new FileStream(path, FileMode.Open, FileAccess.ReadWrite, FileShare.Read))
            Assert.Equal(expected, BarPanel.ReadCsv(path));
        using (new FileStream(path, FileMode.Open, FileAccess.ReadWrite, FileShare.None))
            Assert.Contains("cannot be read", Assert.Throws<QuantraException>(() => BarPanel.ReadCsv(path)).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task Bars_can_be_read_from_a_pipe()
    {
        Assert.SkipWhen(OperatingSystem.IsWindows(), "Windows has no mkfifo");
        var path = Path.Combine(_folder.FullName, "bars.csv");
        using (var made = Process.Start("mkfifo", [path]))
            await made.WaitForExitAsync(TestContext.Current.CancellationToken);
        var reading = BarPanel.ReadCsvAsync(path, TestContext.Current.CancellationToken);
        await File.WriteAllTextAsync(path, Three, TestContext.Current.CancellationToken);
        Assert.Equal(3, (await reading).Symbols.Count);
    }

    [Theory]
    [InlineData("2013-12-22T10:00:00Z", "2013-12-26T15:00:00Z", "2013-12-23")] // a Sunday in UTC is already Monday in Tokyo
    [InlineData("2013-12-24T09:59:00+00:00", "2013-12-28T02:00:00+00:00", "2013-12-23")] // a Saturday in UTC is still Friday evening in New York
    [InlineData("2013-12-22T00:00:00Z", "2013-12-26T00:00:00Z", "2013-12-22")]
    [InlineData("2013-12-23T21:00:00Z", "2013-12-27T21:00:00Z", "2013-12-23")]
    [InlineData("2013-12-22T15:00:00+09:00", "2013-12-26T15:00:00+09:00", "2013-12-22")]
    [InlineData("2013-12-22 15:00", "2013-12-26T15:00:00Z", "2013-12-22")]
    public void UTC_times_belong_to_the_days_that_the_week_implies(string first, string last, string session)
    {
        var panel = Read($"date,open,high,low,close,volume\n{first},1,1,1,1,1\n{last},2,2,2,2,2\n");
        var day = DateOnly.ParseExact(session, "yyyy-MM-dd", CultureInfo.InvariantCulture);
        Assert.Equal([day, day.AddDays(4)], panel.Sessions.ToArray());
        Assert.Equal([1, 2], panel.Close.ToArray());
    }

    [Fact]
    public void Bars_four_days_apart_count_as_daily()
    {
        var days = Enumerable.Range(0, 6).Select(place => $"{new DateOnly(2013, 12, 2).AddDays(4 * place):yyyyMMdd},1,1,1,1,1\n");
        Assert.Equal(6, Read("date,open,high,low,close,volume\n" + string.Concat(days)).Sessions.Length);
    }

    [Fact]
    public void A_long_first_line_is_shortened_in_the_message()
    {
        var failure = Assert.Throws<QuantraException>(() => Read("{\"bars\": [" + new string('1', 100_000) + "]}\n"));
        Assert.InRange(failure.Message.Length, 1, 400);
    }

    [Fact]
    public void A_field_is_read_under_another_name_if_no_column_has_its_own()
    {
        Assert.Equal([0.5], Read("day,open,high,low,close,vol,adjClose\n20131231,1,1,1,1,1,0.5\n").AdjustedClose.ToArray());
        Assert.Equal([0.4], Read("date,open,high,low,close,volume,adj_close,adjClose\n20131231,1,1,1,1,1,0.4,0.5\n").AdjustedClose.ToArray());
    }

    [Fact]
    public void A_symbol_that_is_not_UTF8_is_rejected()
    {
        var path = Path.Combine(_folder.FullName, "bars.csv");
        File.WriteAllBytes(path, [.. "symbol,date,open,high,low,close,volume\nM"u8, 0xFC, .. "nchener,2013-12-30,1,2,0.5,1.5,100\n"u8]);
        var failure = Assert.Throws<QuantraException>(() => BarPanel.ReadCsv(path));
        Assert.Contains("row 1 after the header, column symbol: ", failure.Message, StringComparison.Ordinal);
        Assert.Contains("save the file as CSV in UTF-8", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void A_few_rows_do_not_make_a_huge_panel()
    {
        var first = new DateOnly(2000, 1, 1);
        var rows = Enumerable.Range(0, 4000).Select(row => $"S{row},{first.AddDays(row):yyyyMMdd},1,1,1,1,1\n");
        var failure = Assert.Throws<QuantraException>(() => Read("symbol,date,open,high,low,close,volume\n" + string.Concat(rows)));
        Assert.Contains("4000 rows of 4000 symbols on 4000 dates", failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("Ticker")]
    [InlineData("ticker symbol")]
    [InlineData("Stock_Symbol")]
    public void The_symbol_is_read_under_unambiguous_names(string name)
    {
        var panel = Read($"{name},date,open,high,low,close,volume\nA,2013-12-30,1,1,1,1,1\nB,2013-12-30,2,2,2,2,2\n");
        Assert.Equal(["A", "B"], panel.Symbols);
    }

    [Fact]
    public void Symbol_and_ticker_columns_are_allowed_if_they_agree()
    {
        var panel = Read("ticker,symbol,date,open,high,low,close,volume\nA,A,2013-12-30,1,1,1,1,1\n");
        Assert.Equal(["A"], panel.Symbols);
    }

    [Theory]
    [InlineData("", "missing column date")]
    [InlineData("ticker,symbol,date,open,high,low,close,volume\nA,A,20131230,1,1,1,1,1\nA.N,A,20131231,1,1,1,1,1\n", "row 2 after the header: column symbol says 'A', column ticker says 'A.N'; keep the one")]
    [InlineData("Instrument,date,open,high,low,close,volume\nA,20131230,1,1,1,1,1\nA,20131231,1,1,1,1,1\nB,20131230,1,1,1,1,1\nB,20131231,1,1,1,1,1\n", "no symbol column, and 2013-12-30 appears twice; if column 'instrument' holds it, rename it to symbol")]
    [InlineData("code,date,open,high,low,close,volume\nA,20131230,1,1,1,1,1\nA,20131231,1,1,1,1,1\nB,20121230,1,1,1,1,1\nB,20121231,1,1,1,1,1\n", "no symbol column, and its dates are not in order; if column 'code' holds it, rename it to symbol")]
    [InlineData("trend,date,open,high,low,close,volume\nup,20131231,1,1,1,1,1\ndown,20131230,1,1,1,1,1\nup,20131229,1,1,1,1,1\n", "comes after 2013-12-31; sort each symbol's rows")]
    [InlineData("date,open,high,low,close,volume\n", "no rows")]
    [InlineData("date;open;high;low;close;volume\n20131231;1;1;1;1;1\n", "it has date;open;high;low;close;volume; separate its columns by commas")]
    [InlineData("date,open,high,low,close,volume\n2013-02-29,1,1,1,1,1\n", "'2013-02-29' is not a date")]
    [InlineData("date,open,high,low,close,volume\n2013-12-31,1,1,1,\"1,5\",1\n", "column close: '1,5' is not a number")]
    [InlineData("date,open,high,low,volume\n2013-12-31,1,1,1,1\n", "missing column close")]
    [InlineData("day,time,open,high,low,close,volume\n2013-12-31,16:00,1,1,1,1,1\n", "columns time, day may each hold the date; rename the right one to date")]
    [InlineData("timestamp,open,high,low,close,volume,trade_count,vwap\n2013-12-31T05:00:00Z,1,1,1,1,1,1,1\n", "columns timestamp, trade_count, vwap of Alpaca")]
    [InlineData("unix,date,symbol,open,high,low,close,volume btc,volume\n1,2013-12-31,A,1,1,1,1,1,1\n", "columns unix, date, symbol of CryptoDataDownload")]
    [InlineData("date,open,high,low,close,volume\n2013-12-30T25:00:00Z,1,1,1,1,1\n", "'2013-12-30T25:00:00Z' is not a time")]
    [InlineData("date,open,high,low,close,volume\n2013-12-30T15:00:00Z,1,1,1,1,1\n", "the UTC time 2013-12-30T15:00:00Z may belong to the session 2013-12-30 or 2013-12-31")]
    [InlineData("date,open,high,low,close,volume\n20131202,1,1,1,1,1\n20131209,1,1,1,1,1\n20131216,1,1,1,1,1\n20131221,1,1,1,1,1\n20131230,1,1,1,1,1\n", "its bars are 7 days apart, the closest 5, but daily bars are required")]
    [InlineData("PK\u0003\u0004", "it has no columns, because it is not text")]
    [InlineData("date,open,high,low,close,volume,Close\n", "more than one column close")]
    [InlineData("date,open,high,low,close,volume\n2013-12-31,1,x,1,1,1\n", "row 1 after the header, column high: 'x' is not a number")]
    [InlineData("date,open,high,low,close,volume\n31.12.2013,1,1,1,1,1\n", "'31.12.2013' is not a date")]
    [InlineData("date,open,high,low,close,volume\n2013-12-31,1,1,1,1\n", "row 1 after the header has 5 cells, but the header has 6")]
    [InlineData("date,open,high,low,close,volume\n2013-12-31,1,1,1,1,1\n2013-12-31,1,1,1,1,1\n", "appears twice; give each day one row, or add a column symbol")]
    [InlineData("date,open,high,low,close,volume\n2013-12-31,1,1,1,1,1\n2013-12-30,1,1,1,1,1\n", "comes after 2013-12-31")]
    [InlineData("symbol,date,open,high,low,close,volume\n,2013-12-31,1,1,1,1,1\n", "the symbol is empty")]
    public void An_invalid_file_is_rejected(string text, string problem)
    {
        var failure = Assert.Throws<QuantraException>(() => Read(text));
        Assert.Equal(QuantraReason.BarsInvalid, failure.Reason);
        Assert.Contains(problem, failure.Message, StringComparison.Ordinal);
        Assert.StartsWith("bars.csv: ", failure.Message, StringComparison.Ordinal);
    }

    [Fact]
    public void A_missing_file_is_rejected()
    {
        var failure = Assert.Throws<QuantraException>(() => BarPanel.ReadCsv(Path.Combine(_folder.FullName, "none.csv")));
        Assert.Equal(QuantraReason.BarsInvalid, failure.Reason);
    }

    [Fact]
    public void An_unknown_symbol_is_rejected()
    {
        var panel = Read("date,open,high,low,close,volume\n2013-12-31,1,1,1,1,1\n");
        Assert.Contains("the panel has BARS", Assert.Throws<QuantraException>(() => panel.Select("X")).Message, StringComparison.Ordinal);
    }

    [Fact]
    public void Last_returns_the_newest_bars()
    {
        var bars = Read("date,open,high,low,close,volume\n2013-12-30,1,1,1,1,1\n2013-12-31,2,2,2,2,2\n").Select("BARS");
        Assert.Equal([2], bars.Last(1).Close.ToArray());
        Assert.Equal(2, bars.Last(5).Sessions.Length);
        Assert.Throws<ArgumentOutOfRangeException>(() => bars.Last(0));
    }

    [Fact]
    public void Last_returns_the_newest_sessions_of_every_symbol()
    {
        var last = Read(Three).Last(2);
        Assert.Equal([new DateOnly(2013, 12, 30), new DateOnly(2013, 12, 31)], last.Sessions.ToArray());
        Assert.Equal(["A", "B", "C"], last.Symbols);
        Assert.Equal([12, 13, 22, 23, 32, 33], last.Close.ToArray());
        Assert.Equal([12.5, 13.5, 22.5, 23.5, 32.5, 33.5], last.AdjustedClose.ToArray());
        Assert.True(last.SplitRatio.IsEmpty);
        Assert.Equal(Read(Three), Read(Three).Last(9));
        Assert.Throws<ArgumentOutOfRangeException>(() => last.Last(0));
    }

    [Fact]
    public void Between_includes_both_days()
    {
        var (panel, last) = (Read(Three), new DateOnly(2013, 12, 31));
        var day = panel.Between(last, last);
        Assert.Equal([last], day.Sessions.ToArray());
        Assert.Equal([13, 23, 33], day.Close.ToArray());
        Assert.Equal([13.5, 23.5, 33.5], day.AdjustedClose.ToArray());
        Assert.Equal([11, 12, 21, 22, 31, 32], panel.Until(last.AddDays(-1)).Close.ToArray());
        Assert.Equal(panel, panel.Until(last.AddYears(1)));
        Assert.Equal(day.Select("B"), panel.Select("B").Between(last, last));
        Assert.Equal([21, 22], panel.Select("B").Until(last.AddDays(-1)).Close.ToArray());
        Assert.Contains("no session between 2014-01-01 and 2014-01-02; the panel has 3 sessions", Refusal(() => panel.Between(last.AddDays(1), last.AddDays(2))), StringComparison.Ordinal);
        Assert.Contains("no session between", Refusal(() => panel.Select("B").Until(DateOnly.MinValue)), StringComparison.Ordinal);

        static string Refusal(Func<object> cut) => Assert.Throws<QuantraException>(cut).Message;
    }

    [Fact]
    public void Selected_symbols_come_in_the_given_order()
    {
        var panel = Read(Three) with { Calendar = "XNYS", Currency = "USD" };
        var some = panel.Select(["C", "A"]);
        Assert.Equal(["C", "A"], some.Symbols);
        Assert.Equal([31, 32, 33, 11, 12, 13], some.Close.ToArray());
        Assert.Equal([31.5, 32.5, 33.5, 11.5, 12.5, 13.5], some.AdjustedClose.ToArray());
        Assert.Equal(("XNYS", "USD", 3), (some.Calendar, some.Currency, some.Sessions.Length));
        Assert.Equal(panel.Select("C"), some.Select("C"));
        Assert.Contains("no bars of X", Assert.Throws<QuantraException>(() => panel.Select(["A", "X"])).Message, StringComparison.Ordinal);
    }

    [Fact]
    public async Task A_file_can_be_read_asynchronously()
    {
        var panel = Read(Three);
        Assert.Equal(panel, await BarPanel.ReadCsvAsync(Path.Combine(_folder.FullName, "bars.csv"), TestContext.Current.CancellationToken));
    }

    [Fact]
    public async Task File_errors_are_thrown_by_the_task()
    {
        var reading = BarPanel.ReadCsvAsync(Path.Combine(_folder.FullName, "none.csv"), TestContext.Current.CancellationToken);
        Assert.Equal(QuantraReason.BarsInvalid, (await Assert.ThrowsAsync<QuantraException>(() => reading)).Reason);
    }

    [Fact]
    public async Task Reading_can_be_cancelled()
    {
        Read(Three);
        var path = Path.Combine(_folder.FullName, "bars.csv");
        using var source = new CancellationTokenSource();
        await source.CancelAsync();
        await Assert.ThrowsAnyAsync<OperationCanceledException>(() => BarPanel.ReadCsvAsync(path, source.Token));
        Assert.Throws<OperationCanceledException>(() => BarsCsvReader.Read(path, source.Token));
    }

    private static IEnumerable<long> Bits(ReadOnlyMemory<double> values) => values.ToArray().Select(BitConverter.DoubleToInt64Bits);

    private BarPanel Read(string text)
    {
        var path = Path.Combine(_folder.FullName, "bars.csv");
        File.WriteAllText(path, text);
        return BarPanel.ReadCsv(path);
    }
}
