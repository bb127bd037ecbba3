namespace Quantra.Client;

/// <summary>How detailed an attribution is.</summary>
public enum ExplanationDetail
{
    /// <summary>One number per input.</summary>
    Features,

    /// <summary>Also one per session.</summary>
    Times,

    /// <summary>Also one per observed cell.</summary>
    Cells,
}
