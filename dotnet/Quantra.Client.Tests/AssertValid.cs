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
