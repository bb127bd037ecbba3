namespace Quantra.Client.Wire;

/// <summary>A result of a stream that is ready to be read.</summary>
/// <param name="Result">The result.</param>
/// <param name="FreesName">Whether the name of its request is free again once it was read: it is not one that was refused as a second of its name.</param>
internal readonly record struct StreamedAnswer(PredictionResult Result, bool FreesName);
