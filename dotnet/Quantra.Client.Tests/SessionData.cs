namespace Quantra.Client.Tests;

/// <summary>Bars of the fixture for sessions: a history and the following days.</summary>
internal static class SessionData
{
    private static readonly string[] Observed = ["short_interest", "credit_spread"];

    /// <summary>Returns the panel, the panel without its last days, and these days.</summary>
    public static (BarPanel Panel, BarPanel Before, DateOnly[] Days) Split(PredictorFixture fixture, int count)
    {
        var panel = BarPanel.ReadCsv(fixture.PathOf("bars.csv"));
        var days = panel.Sessions.ToArray();
        return (panel, panel.Until(days[^(count + 1)]), days[^count..]);
    }

    /// <summary>Returns a request with covariates for a range of the fixture's sessions. Static covariates are included if the range starts at 0.</summary>
    public static PredictionRequest WithCovariates(PredictorFixture fixture, Range sessions)
    {
        var panel = BarPanel.ReadCsv(fixture.PathOf("covariate_bars.csv"));
        var (sent, count) = (fixture.Expected.Of("sent_covariates"), panel.Sessions.Length);
        var (start, length) = sessions.GetOffsetAndLength(count);
        var future = sent.Days("future_sessions");
        var days = panel.Sessions.ToArray();
        return new PredictionRequest("covariates", panel.Between(days[start], days[start + length - 1]))
        {
            Covariates = (start == 0 ? Statics(sent) : Covariates.None) with
            {
                Observed = Observed.ToDictionary(name => name, name => Cut(sent.Array<double>(name), count, sessions)),
                Known = new Dictionary<string, ReadOnlyMemory<double>> { ["rebalance"] = Cut(sent.Array<double>("rebalance"), count + future.Length, start..) },
                FutureSessions = (DateOnly[])[.. days[(start + length)..], .. future],
            },
        };

        static ReadOnlyMemory<double> Cut(double[] column, int length, Range part) => column.Chunk(length).SelectMany(row => row[part]).ToArray();
    }

    /// <summary>Converts a prediction request to the opening of a session.</summary>
    public static SessionRequest ToSession(this PredictionRequest request) => new(request.Model, request.Bars!) { Covariates = request.Covariates };

    /// <summary>Returns the request for some of its symbols.</summary>
    public static PredictionRequest Of(this PredictionRequest request, params int[] rows)
    {
        var symbols = request.Bars!.Symbols.Count;
        return new PredictionRequest(request.Model, request.Bars.Select([.. rows.Select(row => request.Bars.Symbols[row])]))
        {
            Covariates = request.Covariates with
            {
                Observed = Rows(request.Covariates.Observed),
                Known = Rows(request.Covariates.Known),
            },
        };

        Dictionary<string, ReadOnlyMemory<double>> Rows(IReadOnlyDictionary<string, ReadOnlyMemory<double>> columns) =>
            columns.ToDictionary(one => one.Key, one => new ReadOnlyMemory<double>(Cut(one.Value.ToArray())));

        double[] Cut(double[] column) => [.. rows.SelectMany(row => column.Chunk(column.Length / symbols).ElementAt(row))];
    }

    private static Covariates Statics(ExpectedResults sent) => new()
    {
        Numbers = new Dictionary<string, ReadOnlyMemory<double>> { ["cap"] = sent.Array<double>("cap") },
        Categories = new Dictionary<string, IReadOnlyList<string>> { ["sector"] = sent.Texts("sector") },
    };
}
