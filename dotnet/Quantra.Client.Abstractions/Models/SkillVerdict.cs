namespace Quantra.Client;

/// <summary>What the confidence interval of an improvement shows.</summary>
public enum SkillVerdict
{
    /// <summary>A verdict that this version of the client does not know.</summary>
    Unknown,

    /// <summary>The whole interval is above zero.</summary>
    Better,

    /// <summary>The interval contains zero, or there are too few days.</summary>
    Undecided,

    /// <summary>The whole interval is below zero.</summary>
    Worse,
}
