namespace Quantra.Client.Tests;

/// <summary>Checks that hold for every result, whether from a predictor or a builder.</summary>
internal static class AssertValid
{
    public static void Forecast(Forecast forecast)
    {
        var (symbols, horizons, quantiles) = (forecast.Symbols.Count, forecast.Horizons.Count, forecast.Quantiles.Count);
        var cells = symbols * horizons * quantiles;
        Assert.Equal((cells, horizons), (forecast.Values.Length, forecast.TargetSessions.Count));
        Assert.Equal(forecast.TargetSessions.Order(), forecast.TargetSessions);
        Assert.True(forecast.BaseSession < forecast.TargetSessions[0]);
        Assert.Equal(symbols, forecast.AnchorPrice!.Value.Length);
        Assert.Equal(forecast.Returns is not null && forecast.Lag == 0, forecast.Prices is not null);
        Assert.Equal(forecast.Scores is null, forecast.Ranks is null);
        Assert.Equal((forecast.Scores?.Length ?? symbols * horizons), symbols * horizons);
        foreach (var row in forecast.Table().Chunk(quantiles))
            AssertRow(forecast, row);
        Assert.NotEmpty(forecast.ToString());
        Assert.Equal(64, forecast.WeightsHash.Length);
    }

    public static void Attribution(Attribution attribution)
    {
        var (symbols, rows, sessions) = (attribution.Symbols.Count, attribution.RowNames.Count, attribution.Sessions.Count);
        var observed = attribution.RowKinds.Count(kind => kind == RowKind.Observed);
        Assert.Equal((rows, symbols * rows), (attribution.RowKinds.Count, attribution.PerRow.Length));
        Assert.Equal(symbols * sessions, attribution.PerTime?.Length ?? symbols * sessions);
        Assert.Equal(symbols * sessions * observed, attribution.Cells?.Length ?? symbols * sessions * observed);
        Assert.Equal((symbols, symbols, symbols), (attribution.RelativeGap.Length, attribution.Converged.Count, attribution.Nodes.Count));
        for (var row = 0; row < symbols; row++)
        {
            var whole = attribution.Prediction.Span[row] - attribution.BaselinePrediction.Span[row];
            var parts = attribution.Table(attribution.Symbols[row]).Sum(one => one.Value);
            Assert.InRange(Math.Abs(whole - parts), 0, (Math.Abs(whole) * attribution.RelativeGap.Span[row]) + 1e-9);
        }

        Assert.Equal(64, attribution.WeightsHash.Length);
    }

    public static void Model(ModelInfo model)
    {
        Assert.Equal(model.EncoderLength + model.Lookback - 1, model.BarsNeeded);
        Assert.Equal(model.Horizons.Order(), model.Horizons);
        Assert.Equal(model.Quantiles.Order(), model.Quantiles);
        Assert.Contains("integrated-gradients", model.ExplainMethods);
        Assert.Equal(64, model.WeightsHash.Length);
    }

    /// <summary>Checks the answers to a request with holdings, with the paths that it includes.</summary>
    public static void Simulation(PathSimulation found, PathSimulationRequest request)
    {
        Assert.Equal((request.Paths, request.Day ?? found.Days), (found.Paths, found.Day));
        Assert.Equal(found.Paths * found.Symbols.Count * found.Days, found.Returns!.Value.Length);
        double[] losses = [.. Each(path => -request.Holdings.Sum(one => one.Value * ((found.Price(path, one.Key, found.Day) / AnchorOf(one.Key)) - 1)))];
        AssertShare(1 - request.Level, losses.Select(loss => loss > found.ValueAtRisk!.Value));
        var worst = Math.Max(1, (int)Math.Round((1 - request.Level) * found.Paths));
        Assert.Equal(losses.OrderDescending().Take(worst).Average(), found.ExpectedShortfall!.Value, 6);
        Assert.InRange(found.Drawdown!.Value, 0, 1);
        Assert.Equal(request.PriceLevels, found.PriceProbabilities.Select(one => new PriceLevel(one.Symbol, one.Price)));
        foreach (var one in found.PriceProbabilities)
        {
            AssertShare(one.Above.Value, Each(path => found.Price(path, one.Symbol, found.Day) > one.Price));
            AssertShare(one.Touched.Value, Each(path => Enumerable.Range(1, found.Day).Any(day => IsBeyond(found.Price(path, one.Symbol, day), one))));
        }

        Estimate[] estimates = [found.ValueAtRisk!, found.ExpectedShortfall, found.Drawdown, .. found.PriceProbabilities.SelectMany(one => new[] { one.Above, one.Touched })];
        Assert.All(estimates, one => Assert.InRange(one.Value, one.Lower, one.Upper));
        Assert.NotEmpty(found.ForecastId);

        IEnumerable<T> Each<T>(Func<int, T> value) => Enumerable.Range(0, found.Paths).Select(value);

        double AnchorOf(string symbol) => found.AnchorPrice.Span[found.Symbols.ToList().IndexOf(symbol)];

        bool IsBeyond(double close, PriceProbability one) => one.Price >= AnchorOf(one.Symbol) ? close >= one.Price : close <= one.Price;

        void AssertShare(double share, IEnumerable<bool> outcomes) =>
            Assert.InRange(outcomes.Count(isTrue => isTrue), (share * found.Paths) - 0.99, (share * found.Paths) + 0.99);
    }

    /// <summary>Checks that the quantiles of one symbol and horizon are ordered, or all missing.</summary>
    private static void AssertRow(Forecast forecast, ForecastRow[] row)
    {
        if (forecast.Refusals.ContainsKey(row[0].Symbol))
        {
            Assert.All(row, cell => Assert.Equal((double.NaN, double.NaN, 0), (cell.Value, cell.Price, cell.Rank)));
            return;
        }

        Assert.Equal(row.Select(cell => cell.Value).Order(), row.Select(cell => cell.Value));
        if (forecast.Prices is not null)
            Assert.All(row, cell => Assert.Equal(Anchor(forecast, cell.Symbol) * Math.Exp(cell.Value), cell.Price, 6));
    }

    private static double Anchor(Forecast forecast, string symbol) =>
        forecast.AnchorPrice!.Value.Span[forecast.Symbols.ToList().IndexOf(symbol)];
}
