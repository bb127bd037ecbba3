namespace Quantra.Client;

/// <summary>Whether an outcome has a value.</summary>
public enum OutcomeStatus
{
    /// <summary>A status that this version of the client does not know.</summary>
    Unknown,

    /// <summary>It has a value and scores.</summary>
    Scored,

    /// <summary>It will never have a value; its reason says why.</summary>
    Unscorable,
}
