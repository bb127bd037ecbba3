namespace Quantra.Client.Wire;

/// <summary>A result of a stream that the caller has not read yet.</summary>
/// <param name="Result">The result.</param>
/// <param name="ReleasesId">Whether reading it makes its id available again; false for the rejection of a duplicate id.</param>
internal readonly record struct StreamResult(PredictionResult Result, bool ReleasesId);
