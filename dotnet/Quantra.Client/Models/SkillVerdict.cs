namespace Quantra.Client;

/// <summary>What the interval of an improvement says.</summary>
public enum SkillVerdict
{
    /// <summary>A newer server's verdict.</summary>
    Unknown,

    /// <summary>All of it lies above zero.</summary>
    Better,

    /// <summary>Zero lies within, or the days are too few to tell.</summary>
    Undecided,

    /// <summary>All of it lies below zero.</summary>
    Worse,
}
