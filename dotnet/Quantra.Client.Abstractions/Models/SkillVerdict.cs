namespace Quantra.Client;

/// <summary>What the confidence interval of an improvement says.</summary>
public enum SkillVerdict
{
    /// <summary>A verdict that this version of the client does not know.</summary>
    Unknown,

    /// <summary>All of it lies above zero.</summary>
    Better,

    /// <summary>Zero lies in it, or there are too few days to tell.</summary>
    Undecided,

    /// <summary>All of it lies below zero.</summary>
    Worse,
}
