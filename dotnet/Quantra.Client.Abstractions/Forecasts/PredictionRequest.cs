namespace Quantra.Client;

/// <summary>A request for one forecast: a model, and a panel of bars or feature windows.</summary>
public sealed record PredictionRequest
{
    /// <summary>Requests a forecast of several symbols.</summary>
    /// <param name="model">The model.</param>
    /// <param name="bars">At least <see cref="ModelInfo.BarsNeeded"/> sessions, oldest first.</param>
    public PredictionRequest(ModelReference model, BarPanel bars)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(bars);
        Model = model;
        Bars = bars;
    }

    /// <summary>Requests a forecast of one symbol.</summary>
    /// <param name="model">The model.</param>
    /// <param name="bars">At least <see cref="ModelInfo.BarsNeeded"/> bars, oldest first.</param>
    public PredictionRequest(ModelReference model, BarSeries bars)
        : this(model, Panel(bars))
    {
    }

    /// <summary>Requests a forecast from features that the caller has computed.</summary>
    /// <param name="model">The model.</param>
    /// <param name="window">Inputs computed by the model's schema.</param>
    public PredictionRequest(ModelReference model, FeatureWindow window)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(window);
        Model = model;
        Window = window;
    }

    /// <summary>The model.</summary>
    public ModelReference Model { get; init; }

    /// <summary>The bars; null if <see cref="Window"/> is given.</summary>
    public BarPanel? Bars { get; }

    /// <summary>The feature windows; null if <see cref="Bars"/> are given.</summary>
    public FeatureWindow? Window { get; }

    /// <summary>What the model reads with the bars; windows contain it already.</summary>
    public Covariates Covariates { get; init; } = Covariates.None;

    /// <summary>Returned with the result; may be empty.</summary>
    public string RequestId { get; init; } = "";

    /// <summary>Whether to accept a last bar whose session has not closed yet.</summary>
    public bool AllowIncompleteLastBar { get; init; }

    /// <summary>What to do about missing sessions.</summary>
    public GapPolicy GapPolicy { get; init; }

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "forecast by small of bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
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
