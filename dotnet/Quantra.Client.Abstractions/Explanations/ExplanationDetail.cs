namespace Quantra.Client;

/// <summary>Detail of an attribution.</summary>
public enum ExplanationDetail
{
    /// <summary>One number per input.</summary>
    Features,

    /// <summary>In addition, one number per session.</summary>
    Times,

    /// <summary>In addition, one number per observed cell.</summary>
    Cells,
}
