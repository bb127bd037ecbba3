namespace Quantra.Client.Tests;

/// <summary>Reading covariates.</summary>
public sealed class CovariateSourceTests : IDisposable
{
    private static readonly DateOnly[] Days = [.. Enumerable.Range(1, 5).Select(day => new DateOnly(2013, 7, day))]; // starting on a Monday

    private readonly DirectoryInfo _folder = Directory.CreateTempSubdirectory("quantra-covariates-");

    public void Dispose() => _folder.Delete(recursive: true);

    [Fact]
    public void Original_and_restated_values_count_from_the_day_they_were_known()
    {
        var read = Read("symbol,date,known_from,rate\nA,2013-06-28,2013-07-02,1\nA,2013-06-28,2013-07-04,2\nA,2013-06-27,2013-07-05,9\n");
        Assert.Equal([double.NaN, 1, 1, 2, 2, .. Enumerable.Repeat(double.NaN, 5)], read.Observed["rate"].ToArray());
    }

    [Fact]
    public void UTC_times_belong_to_the_days_that_the_week_implies()
    {
        var read = Read( // Sunday, Monday and Tuesday in UTC are Monday, Tuesday and Wednesday in Tokyo
            "date,known_from,rate\n2013-06-30T15:00Z,20130601,1\n2013-07-01T15:00Z,20130601,2\n2013-07-02T15:00Z,20130601,3\n",
            CovariateGroup.Known);
        Assert.Equal([1, 2, 3, 3, 3], read.Known["rate"].ToArray()[..5]);
    }

    [Fact]
    public void An_empty_cell_has_no_value_and_nan_withdraws()
    {
        var read = Read("date,known_from,rate\n20130701,20130701,1\n20130702,20130702,\n20130703,20130703,nan\n");
        double[] each = [1, 1, double.NaN, double.NaN, double.NaN];
        Assert.Equal([.. each, .. each], read.Observed["rate"].ToArray());
    }

    [Fact]
    public void Known_values_reach_ahead_as_known_at_the_last_close()
    {
        var read = Read("date,known_from,rebalance\n20130701,20130601,0\n20130709,20130705,1\n20130710,20130708,0\n", CovariateGroup.Known);
        Assert.Equal(new DateOnly(2013, 7, 8), read.FutureSessions.Span[0]);
        Assert.Equal(2 + 1 + 15, read.FutureSessions.Length);
        Assert.DoesNotContain(read.FutureSessions.ToArray(), day => day.DayOfWeek is DayOfWeek.Saturday or DayOfWeek.Sunday);
        var first = read.Known["rebalance"].ToArray()[..(5 + 18)];
        Assert.Equal([0, 0, 0, 0, 0, 0, 1, 1, 1], first[..9]);
    }

    [Fact]
    public void A_model_with_a_24_7_calendar_gets_weekends()
    {
        var read = Read("date,known_from,rebalance\n20130701,20130601,0\n", CovariateGroup.Known, calendar: "24/7");
        var last = Days[^1];
        Assert.Equal([last.AddDays(1), last.AddDays(2)], read.FutureSessions.ToArray());
        Assert.Contains(DayOfWeek.Saturday, read.FutureSessions.ToArray().Select(day => day.DayOfWeek));
    }

    [Fact]
    public void Static_values_are_numbers_or_texts_depending_on_the_model()
    {
        var read = Read(
            "date,known_from,rate\n20130701,20130701,1\n",
            CovariateGroup.Observed,
            "symbol,sector,cap\nB,Media,\nA,Hardware,2.5\nC,Media,1\n");
        Assert.Equal(["Hardware", "Media"], read.Categories["sector"]);
        Assert.Equal([2.5, double.NaN], read.Numbers["cap"].ToArray());
    }

    [Theory]
    [InlineData("date,rate\n20130701,1\n", "column known_from is missing")]
    [InlineData("date,known_from\n20130701,20130701\n", "no value columns")]
    [InlineData("date,known_from,rate\n", "no rows")]
    [InlineData("date,known_from,1st\n20130701,20130701,1\n", "column '1st' must have")]
    [InlineData("date,known_from,rate\n20130701,2013-07-01T18:00,1\n", "row 1 after the header, column known_from: '2013-07-01T18:00' has a time of day")]
    [InlineData("date,known_from,rate\n2013-07-01T15:00Z,20130702,1\n", "the UTC time 2013-07-01T15:00Z may belong to the session 2013-07-01 or 2013-07-02")]
    [InlineData("date,known_from,rate\n20130701,2013-07-01,high\n", "row 1 after the header, column rate: 'high' is not a number")]
    [InlineData("date,known_from,rate\n20130701,20130701,1\n20130702,20130702,2\n20130701,20130701,3\n", "rows 1 and 3 after the header give 2013-07-01 two values that became known on the same day; keep one, or add a column symbol that tells them apart")]
    [InlineData("instrument,date,known_from,rate\nA,20130701,20130701,1\nB,20130701,20130701,1\n", "column instrument: 'A' is not a number, and the file has no column symbol; if column 'instrument' holds it, rename it to symbol")]
    [InlineData("ticker,date,known_from,rate\na,20130701,20130701,1\n", "use a, but the bars use A")]
    [InlineData("symbol,date,known_from,rate\na,20130701,20130701,1\n", "use a, but the bars use A")]
    public void An_invalid_file_is_rejected(string text, string problem)
    {
        var failure = Assert.Throws<QuantraException>(() => Read(text));
        Assert.Equal(QuantraReason.CovariatesInvalid, failure.Reason);
        Assert.Contains(problem, failure.Message, StringComparison.Ordinal);
    }

    [Theory]
    [InlineData("RIC,sector\nA,x\nB,x\n", "no symbol column; it has ric, sector; if column 'ric' holds it, rename it to symbol")]
    [InlineData("Ticker,sector\nA,x\nA,y\n", "symbol A has several rows")]
    [InlineData("symbol,sector\nA,x\nA,y\n", "symbol A has several rows")]
    [InlineData("symbol,cap\nA,large\n", "static covariate cap must be a number for every symbol, but is 'large' for A")]
    [InlineData("symbol,rate\nA,1\n", "covariate rate appears twice")]
    public void Invalid_static_values_are_rejected(string text, string problem)
    {
        const string Rate = "date,known_from,rate\n20130701,20130701,1\n";
        var failure = Assert.Throws<QuantraException>(() => Read(Rate, CovariateGroup.Observed, text));
        Assert.Equal(QuantraReason.CovariatesInvalid, failure.Reason);
        Assert.Contains(problem, failure.Message, StringComparison.Ordinal);
    }

    /// <summary>Returns covariates for bars of two symbols and five days, for a model that reads two sessions ahead.</summary>
    private Covariates Read(string dated, CovariateGroup group = CovariateGroup.Observed, string? statics = null, string calendar = "XNYS")
    {
        var (path, staticPath) = (Path.Combine(_folder.FullName, "dated.csv"), Path.Combine(_folder.FullName, "static.csv"));
        File.WriteAllText(path, dated);
        if (statics is not null)
            File.WriteAllText(staticPath, statics);
        CovariateInfo[] needs = [new("rate", group, []), new("rebalance", group, []), new("cap", CovariateGroup.Static, []), new("sector", CovariateGroup.Static, ["Media"])];
        var bars = new BarPanel
        {
            Symbols = ["A", "B"],
            Sessions = Days,
            Open = default,
            High = default,
            Low = default,
            Close = default,
            Volume = default,
        };
        return CovariateSource.ReadCsv([path], statics is null ? null : staticPath).ForModel(Model(needs) with { Calendar = calendar }, bars);
    }

    private static ModelInfo Model(CovariateInfo[] needs) => new()
    {
        Name = "model",
        Version = 1,
        Aliases = [],
        IsDefault = true,
        Kind = "lstm",
        ObservedFeatures = [],
        KnownFeatures = [],
        StaticFeatures = [],
        Covariates = needs,
        SchemaHash = "",
        EncoderLength = 3,
        Lookback = 3,
        BarsNeeded = 5,
        FutureLength = 2,
        Horizons = [2],
        Quantiles = [0.5],
        Lag = 0,
        TargetKind = "log-return",
        Calendar = "XNYS",
        CalendarEnds = null,
        IsPanelModel = false,
        IsScaledPerHorizon = false,
        ExplainMethods = [],
        WeightsHash = "",
        CardJson = "{}",
    };
}
