namespace Quantra.Client;

/// <summary>The result of a comparison of two model versions.</summary>
public enum ComparisonDecision
{
    /// <summary>A decision that this version of the client does not know.</summary>
    Unknown,

    /// <summary>The challenger has what its promotion needs.</summary>
    For,

    /// <summary>The challenger does not have what its promotion needs.</summary>
    Against,

    /// <summary>There are too few days.</summary>
    Undecided,
}
