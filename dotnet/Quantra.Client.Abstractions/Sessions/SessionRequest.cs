namespace Quantra.Client;

/// <summary>A request to open a session: a model, and the history to begin with.</summary>
public sealed record SessionRequest
{
    /// <summary>Requests a session of several symbols.</summary>
    /// <param name="model">The model; a plain name follows its champion, as everywhere.</param>
    /// <param name="bars">The history, oldest first; at least <see cref="ModelInfo.BarsNeeded"/> sessions.</param>
    public SessionRequest(ModelReference model, BarPanel bars)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(bars);
        Model = model;
        Bars = bars;
    }

    /// <summary>Requests a session of one symbol.</summary>
    /// <param name="model">The model; a plain name follows its champion, as everywhere.</param>
    /// <param name="bars">The history, oldest first; at least <see cref="ModelInfo.BarsNeeded"/> bars.</param>
    public SessionRequest(ModelReference model, BarSeries bars)
        : this(model, Panel(bars))
    {
    }

    /// <summary>The model.</summary>
    public ModelReference Model { get; init; }

    /// <summary>The history. Its calendar, its currency and which columns it has stay those of the session.</summary>
    public BarPanel Bars { get; init; }

    /// <summary>What the model reads with the history; the static ones stay so.</summary>
    public Covariates Covariates { get; init; } = Covariates.None;

    /// <summary>Names the session among those of its predictor; empty = any name.</summary>
    public string SessionId { get; init; } = "";

    /// <summary>Whether to accept a last bar whose session has not closed yet; stays so.</summary>
    public bool AllowIncompleteLastBar { get; init; }

    /// <summary>What to do about missing sessions; stays so.</summary>
    public GapPolicy GapPolicy { get; init; }

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "session of small with bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString()
    {
        var name = SessionId is { Length: > 0 } ? $"session {SessionId}" : "session";
        return $"{name} of {Model} with {Bars}{(Covariates is { IsEmpty: false } ? $"; {Covariates}" : "")}";
    }

    private static BarPanel Panel(BarSeries bars)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return bars.ToPanel();
    }
}
