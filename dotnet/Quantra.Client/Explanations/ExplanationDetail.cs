namespace Quantra.Client;

/// <summary>How fine an attribution is.</summary>
public enum ExplanationDetail
{
    /// <summary>One number an input.</summary>
    Features,

    /// <summary>Also one a session.</summary>
    Times,

    /// <summary>Also one an observed cell.</summary>
    Cells,
}
