namespace Quantra.Client;

/// <summary>How to treat sessions of the exchange that are missing from the bars.</summary>
public enum GapPolicy
{
    /// <summary>Reject the bars with SESSION_GAP and name the missing sessions.</summary>
    Refuse,

    /// <summary>Keep them as sessions without a bar.</summary>
    Mask,

    /// <summary>Treat the bars as consecutive.</summary>
    Ignore,
}
