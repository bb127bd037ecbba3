namespace Quantra.Client;

/// <summary>What to do about sessions that the exchange held and the bars lack.</summary>
public enum GapPolicy
{
    /// <summary>Refuse the bars with SESSION_GAP and name the sessions.</summary>
    Refuse,

    /// <summary>Count them as sessions without a bar.</summary>
    Mask,

    /// <summary>Take the bars as consecutive.</summary>
    Ignore,
}
