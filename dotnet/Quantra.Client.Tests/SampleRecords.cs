namespace Quantra.Client.Tests;

/// <summary>Samples of all records with lists, arrays or numbers. Each call creates new parts.</summary>
internal static class SampleRecords
{
    private static readonly DateOnly Monday = new(2013, 7, 1);

    /// <summary>Factories and formatted text of the samples.</summary>
    public static IReadOnlyDictionary<string, (Func<object> Make, string Text)> All { get; } = new Dictionary<string, (Func<object>, string)>
    {
        ["panel"] = (Panel, "bars of A, B; 2 sessions, 2013-07-01 to 2013-07-02"),
        ["series"] = (() => Panel().Select("B"), "bars of B; 2 sessions, 2013-07-01 to 2013-07-02"),
        ["covariates"] = (Sent, "covariates rate, rebalance, cap, sector"),
        ["covariate"] = (() => new CovariateInfo("sector", CovariateGroup.Static, ["Media", "Retail"]), "sector (Static): Media, Retail"),
        ["window"] = (Window, "feature windows of A; 2 sessions and 1 ahead as of 2013-07-02"),
        ["request"] = (Request, "forecast by small@1 of bars of A, B; 2 sessions, 2013-07-01 to 2013-07-02; covariates rate, rebalance, cap, sector"),
        ["window request"] = (() => new PredictionRequest("small", Window()) { Covariates = Sent() }, "forecast by small of feature windows of A; 2 sessions and 1 ahead as of 2013-07-02; covariates rate, rebalance, cap, sector"),
        ["explanation"] = (() => new ExplanationRequest(new("small", Panel()) { Covariates = Sent() }, 5, 0.9) { Symbols = ["A"] }, "q0.9 at 5 days: forecast by small of bars of A, B; 2 sessions, 2013-07-01 to 2013-07-02; covariates rate, rebalance, cap, sector"),
        ["explanations"] = (() => new ManyExplanationsRequest(new("small", Panel()) { Covariates = Sent() }, [new(5), new(20, 0.9)]) { Symbols = ["A"] }, "q0.5 at 5 days, q0.9 at 20 days: forecast by small of bars of A, B; 2 sessions, 2013-07-01 to 2013-07-02; covariates rate, rebalance, cap, sector"),
        ["forecast"] = (Forecast, ""),
        ["row"] = (() => new ForecastRow("A", 5, Monday, 0.5, 0.25, 1.5, double.NaN, 0), "A, 5 days, 2013-07-01, q0.5: 0.25, price 1.5"),
        ["ranked row"] = (() => new ForecastRow("A", 1, null, 0.5, 0.25, double.NaN, 1.5, 2), "A, 1 day, q0.5: 0.25, score 1.5, rank 2"),
        ["result"] = (() => new PredictionResult("first", Forecast(), null), "first: small@1 as of 2013-07-02, 1 symbol"),
        ["refusal"] = (() => new PredictionResult("", null, Error()), "TOO_FEW_BARS: 1 bar, 30 are needed"),
        ["error"] = (Error, "TOO_FEW_BARS: 1 bar, 30 are needed"),
        ["attribution"] = (Attribution, "small@1 as of 2013-07-02: q0.5 at 5 days of A, B; 2 inputs, integrated-gradients"),
        ["internal"] = (Internal, "attention over 2 sessions"),
        ["contribution"] = (() => new Contribution("return_1", RowKind.Observed, 0.25), "return_1 (Observed): 0.25"),
        ["share"] = (() => new Share("last session", 0.25), "last session: 0.25"),
        ["target"] = (() => new ExplanationTarget(5, 0.9), "q0.9 at 5 days"),
        ["global explanation"] = (() => new GlobalExplanationRequest([Request(), Request()], [new(5)]), "q0.5 at 5 days over 2 instances of small@1"),
        ["progress"] = (Progress, "small@1: 2 of 3 instances, 1 refused"),
        ["importance"] = (Importance, "q0.5 at 5 days: 2 inputs over 4 windows"),
        ["important input"] = (() => new InputImportance("return_1", RowKind.Observed, 0.25, 0.125), "return_1 (Observed): 0.25 ± 0.125"),
        ["refused instance"] = (() => new ExplanationRefusal(3, "B", Error()), "instance 3, B: TOO_FEW_BARS: 1 bar, 30 are needed"),
        ["paths request"] = (PathRequest, "300 paths, seed 5: forecast by small@1 of bars of A, B; 2 sessions, 2013-07-01 to 2013-07-02; covariates rate, rebalance, cap, sector"),
        ["paths"] = (Paths, "small@1 as of 2013-07-02, 1 symbol: 2 paths over 2 days"),
        ["estimate"] = (() => new Estimate(0.25, 0.125, 0.5), "0.25 (0.125 to 0.5)"),
        ["price level"] = (() => new PriceLevel("A", 1.5), "A at 1.5"),
        ["price probability"] = (Probability, "A at 1.5: above 0.25 (0.125 to 0.5), touched 0.5 (0.25 to 0.75)"),
        ["session"] = (() => new SessionRequest("small", Panel()) { Covariates = Sent(), SessionId = "mine" }, "session mine of small with bars of A, B; 2 sessions, 2013-07-01 to 2013-07-02; covariates rate, rebalance, cap, sector"),
        ["pushed"] = (() => new PushResult(Forecast(), ["B"]), "small@1 as of 2013-07-02, 1 symbol"),
        ["taken"] = (() => new PushResult(null, ["B"]), "taken; the day waits for B"),
        ["model"] = (Model, "small@1 (lstm): log-return in 1, 5 days, quantiles 0.1, 0.5; needs 30 bars"),
        ["query"] = (() => new ForecastQuery { Model = "small@1", Symbol = "A", First = Monday, Last = Monday.AddDays(4), Roles = [ForecastRole.Champion], Newest = 20 }, "forecasts of small@1 for A since 2013-07-01 until 2013-07-05 as Champion, the newest 20"),
        ["recorded forecast"] = (Recorded, "small@1 as of 2013-07-02: A, Champion, outcomes of 1 of 2 horizons"),
        ["outcome"] = (Outcome, "1 day, 2013-07-03: 0.25, inside"),
        ["unscorable"] = (() => Outcome() with { Status = OutcomeStatus.Unscorable, Value = null, IsInside = null, Reason = "no bar" }, "1 day, 2013-07-03: no bar"),
        ["health"] = (() => new LedgerHealth([Health()], Monday), "1 model as of 2013-07-01"),
        ["model health"] = (Health, "small@1, champion: Amber, 1 test"),
        ["test"] = (Test, "coverage too few at 5 days: Amber until 2013-07-01"),
        ["event"] = (() => new LedgerEvent(7, DateTimeOffset.UnixEpoch, "alarm", "small", 1, Monday, "coverage", "{}"), "7: alarm of small@1 as of 2013-07-01: coverage"),
        ["comparison"] = (Comparison, "small@2 against small@1 on 20 days: Undecided; too few days"),
        ["gate"] = (Gate, "audit: failed, needs a passed audit, has none"),
        ["promotion"] = (() => new PromotionResult(false, [Gate()], 1), "not promoted; champion: version 1; failed: audit"),
        ["rollback"] = (() => new RollbackResult(1, 2), "champion: version 1, before: version 2"),
        ["loaded"] = (() => new LoadResult([Model()], ["small@2 is damaged"]), "serves small@1; not served: small@2 is damaged"),
    };

    private static RecordedForecast Recorded() => new()
    {
        ForecastId = "id",
        Symbol = "A",
        Role = ForecastRole.Champion,
        Model = "small",
        Version = 1,
        WeightsHash = "weights",
        AsOf = Monday.AddDays(1),
        BaseSession = Monday.AddDays(1),
        TargetKind = "log-return",
        Horizons = [1, 5],
        TargetSessions = [Monday.AddDays(2), Monday.AddDays(8)],
        Quantiles = [0.1, 0.5],
        Values = Prices(),
        AnchorPrice = 1.5,
        IsProspective = true,
        MadeAt = DateTimeOffset.UnixEpoch,
        Outcomes = [Outcome()],
    };

    private static RecordedOutcome Outcome() => new(1, Monday.AddDays(2), 0, OutcomeStatus.Scored, 0.25, "", 0.125, true, 0.5);

    private static ModelHealth Health() => new("small", 1, true, Lamp.Amber, [Test()]);

    private static TestHealth Test() => new("coverage too few", 5, Lamp.Amber, Monday, 30, 0.75, 0.875, "{}");

    private static GateResult Gate() => new("audit", false, false, "a passed audit", "none");

    private static ModelComparison Comparison() => new()
    {
        Champion = "small@1",
        Challenger = "small@2",
        Decision = ComparisonDecision.Undecided,
        Need = "20 more days",
        Sentence = "too few days",
        FirstSession = Monday,
        LastSession = Monday.AddDays(28),
        Days = 20,
        Symbols = ["A", "B"],
        Improvement = 0.25,
        Lower = 0.125,
        Upper = 0.5,
        ResultJson = "{}",
    };

    private static BarPanel Panel() => new()
    {
        Symbols = ["A", "B"],
        Sessions = new[] { Monday, Monday.AddDays(1) },
        Open = Prices(),
        High = Prices(),
        Low = Prices(),
        Close = Prices(),
        Volume = Prices(),
        AdjustedClose = Prices(),
        SplitRatio = Prices(),
        CashDividend = Prices(),
    };

    private static double[] Prices() => [1.5, double.NaN, 2.5, 3];

    private static Covariates Sent() => new()
    {
        Observed = new Dictionary<string, ReadOnlyMemory<double>> { ["rate"] = Prices() },
        Known = new Dictionary<string, ReadOnlyMemory<double>> { ["rebalance"] = Prices() },
        FutureSessions = new[] { Monday.AddDays(2) },
        Numbers = new Dictionary<string, ReadOnlyMemory<double>> { ["cap"] = Prices() },
        Categories = new Dictionary<string, IReadOnlyList<string>> { ["sector"] = ["Media", "Retail"] },
    };

    private static PredictionRequest Request() => new("small@1", Panel()) { Covariates = Sent() };

    private static FeatureWindow Window() => new()
    {
        Symbols = ["A"],
        EncoderLength = 2,
        FutureLength = 1,
        Observed = new[] { 1f, float.NaN },
        Known = new[] { 1f, 2, 3 },
        Static = new[] { 1f },
        Mask = new[] { true, false },
        Location = new[] { 0.5 },
        Scale = new[] { 0.25 },
        SchemaHash = "schema",
        Features = ["return_1"],
        AnchorPrice = new[] { 1.5 },
        AsOf = Monday.AddDays(1),
    };

    private static QuantraError Error() =>
        new(QuantraStatus.InvalidArgument, QuantraReason.TooFewBars, "1 bar, 30 are needed", new Dictionary<string, string> { ["have"] = "1" });

    private static Skill Skill() => new("random walk", 0.5, 0.25, double.NaN, 0.9, SkillVerdict.Better, "better", 0, "skill: better");

    private static Forecast Forecast() => new()
    {
        Symbols = ["A"],
        AsOf = Monday.AddDays(1),
        TargetSessions = [Monday.AddDays(2), Monday.AddDays(8)],
        Lag = 0,
        BaseSession = Monday.AddDays(1),
        Horizons = [1, 5],
        Quantiles = [0.1, 0.5],
        TargetKind = "log-return",
        Values = Prices(),
        Returns = Prices(),
        Prices = Prices(),
        AnchorPrice = new[] { double.NaN },
        Model = "small",
        Version = 1,
        WeightsHash = "weights",
        Warnings = ["late"],
        ForecastId = "id",
        Scores = new[] { 0.5, double.NaN },
        Ranks = new[] { 1, 0 },
        UniverseHash = "universe",
        Refusals = new Dictionary<string, QuantraError> { ["A"] = Error() },
        Skill = Skill(),
    };

    private static NetworkInternal Internal() => new("attention", InternalAxis.Sessions, ["-1", "0"], Prices());

    private static Attribution Attribution() => new()
    {
        Symbols = ["A", "B"],
        AsOf = Monday.AddDays(1),
        Horizon = 5,
        Quantile = 0.5,
        Method = "integrated-gradients",
        Baseline = "mean",
        Unit = "log-return",
        RowNames = ["return_1", "weekday"],
        RowKinds = [RowKind.Observed, RowKind.Known],
        PerRow = Prices(),
        Sessions = [Monday, Monday.AddDays(1)],
        PerTime = Prices(),
        Cells = Prices(),
        Prediction = new[] { 0.5, double.NaN },
        BaselinePrediction = new[] { 0.25, double.NaN },
        RelativeGap = new[] { 0.001, double.NaN },
        Converged = [true, false],
        Nodes = [3, 0],
        Model = "small",
        Version = 1,
        WeightsHash = "weights",
        Warnings = ["late"],
        Internals = [Internal()],
        Skill = Skill(),
        Refusals = new Dictionary<string, QuantraError> { ["B"] = Error() },
    };

    private static GlobalExplanationProgress Progress() => new()
    {
        Model = "small",
        Version = 1,
        WeightsHash = "weights",
        Targets = [Importance()],
        Done = 2,
        Total = 3,
        Refused = 1,
        RefusedSymbols = 1,
        Refusals = [new(1, "", Error())],
    };

    private static TargetImportance Importance() => new()
    {
        Horizon = 5,
        Quantile = 0.5,
        Unit = "log return",
        RowNames = ["return_1", "weekday"],
        RowKinds = [RowKind.Observed, RowKind.Known],
        MeanSize = new[] { 0.25, 0.125 },
        StandardError = new[] { double.NaN, 0.5 },
        Windows = 4,
        Converged = 1,
    };

    private static PathSimulationRequest PathRequest() => new(Request())
    {
        Paths = 300,
        Seed = 5,
        Day = 5,
        Level = 0.5,
        Holdings = new Dictionary<string, double> { ["A"] = 800, ["B"] = -300 },
        PriceLevels = [new("A", 1.5)],
        IncludePaths = false,
    };

    private static PathSimulation Paths() => new()
    {
        Symbols = ["A"],
        AsOf = Monday.AddDays(1),
        AnchorPrice = new[] { 1.5 },
        Days = 2,
        Paths = 2,
        PastDays = 500,
        ForecastId = "id",
        Model = "small",
        Version = 1,
        Warnings = ["late"],
        Refusals = new Dictionary<string, QuantraError> { ["B"] = Error() },
        Day = 1,
        ValueAtRisk = new(0.25, 0.125, 0.5),
        ExpectedShortfall = new(0.5, 0.25, 0.75),
        Drawdown = new(0.125, 0, 0.25),
        PriceProbabilities = [Probability()],
        Returns = Prices(),
    };

    private static PriceProbability Probability() => new("A", 1.5, new(0.25, 0.125, 0.5), new(0.5, 0.25, 0.75));

    private static ModelInfo Model()
    {
        return new()
        {
            Name = "small",
            Version = 1,
            Aliases = ["champion"],
            IsDefault = true,
            Kind = "lstm",
            ObservedFeatures = [Feature()],
            KnownFeatures = [Feature()],
            StaticFeatures = [Feature()],
            Covariates = [new("sector", CovariateGroup.Static, ["Media"])],
            SchemaHash = "schema",
            EncoderLength = 2,
            Lookback = 3,
            BarsNeeded = 30,
            FutureLength = 1,
            Horizons = [1, 5],
            Quantiles = [0.1, 0.5],
            Lag = 0,
            TargetKind = "log-return",
            Calendar = "XNYS",
            CalendarEnds = Monday,
            IsPanelModel = false,
            IsScaledPerHorizon = true,
            ExplainMethods = ["integrated-gradients"],
            WeightsHash = "weights",
            CardJson = "{}",
        };

        static FeatureInfo Feature() => new("return_1", "log(close / lag(close, 1))", "return of a day", "log-return");
    }
}
