namespace Quantra.Client;

/// <summary>A request for one forecast: a model, and a panel of bars or feature windows.</summary>
public sealed record PredictionRequest
{
    /// <summary>Requests a forecast for several symbols.</summary>
    /// <param name="model">The model.</param>
    /// <param name="bars">At least <see cref="ModelInfo.BarsNeeded"/> sessions, oldest first.</param>
    public PredictionRequest(ModelReference model, BarPanel bars)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(bars);
        Model = model;
        Bars = bars;
    }

    /// <summary>Requests a forecast for one symbol.</summary>
    /// <param name="model">The model.</param>
    /// <param name="bars">At least <see cref="ModelInfo.BarsNeeded"/> bars, oldest first.</param>
    public PredictionRequest(ModelReference model, BarSeries bars)
        : this(model, Panel(bars))
    {
    }

    /// <summary>Requests a forecast from features that you have computed.</summary>
    /// <param name="model">The model.</param>
    /// <param name="window">Inputs computed with the model's schema.</param>
    public PredictionRequest(ModelReference model, FeatureWindow window)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(window);
        Model = model;
        Window = window;
    }

    /// <summary>The model.</summary>
    public ModelReference Model { get; init; }

    /// <summary>The bars; null if <see cref="Window"/> is set.</summary>
    public BarPanel? Bars { get; }

    /// <summary>The feature windows; null if <see cref="Bars"/> is set.</summary>
    public FeatureWindow? Window { get; }

    /// <summary>Covariates that the model reads with the bars. Feature windows include them.</summary>
    public Covariates Covariates { get; init; } = Covariates.None;

    /// <summary>Id that is returned with the result; may be empty.</summary>
    public string RequestId { get; init; } = "";

    /// <summary>Whether to accept a last bar whose session has not closed.</summary>
    public bool AllowIncompleteLastBar { get; init; }

    /// <summary>Whether to forecast also from bars that contradict the history of their symbol, with a warning.</summary>
    public bool AcceptSuspectBars { get; init; }

    /// <summary>How to treat missing sessions.</summary>
    public GapPolicy GapPolicy { get; init; }

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "forecast by small of bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString()
    {
        var sent = Covariates is { IsEmpty: false } ? $"; {Covariates}" : "";
        return $"forecast by {Model} of {Bars?.ToString() ?? Window?.ToString()}{sent}";
    }

    private static BarPanel Panel(BarSeries bars)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return bars.ToPanel();
    }
}
