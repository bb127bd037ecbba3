namespace Quantra.Client;

/// <summary>What to do about sessions of the exchange that the bars do not have.</summary>
public enum GapPolicy
{
    /// <summary>Refuse the bars with SESSION_GAP and name the missing sessions.</summary>
    Refuse,

    /// <summary>Keep them as sessions without a bar.</summary>
    Mask,

    /// <summary>Treat the bars as consecutive.</summary>
    Ignore,
}
