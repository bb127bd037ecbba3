namespace Quantra.Client;

/// <summary>Weights of a network's own, such as attention: what it turned to on the way to one number of a forecast.</summary>
/// <remarks>They are no contributions and say nothing of what moved the forecast; <see cref="Attribution.Table"/> does.</remarks>
/// <param name="Name">Such as "attention"; that of an ensemble's member has the member's name in front.</param>
/// <param name="Labels">L variables, or sessions counted from the last bar's: "-59" to "0", then "+1".</param>
/// <param name="Values">[S, L] shares that add up to 1, row-major; NaN = no forecast for this symbol.</param>
public sealed record NetworkInternal(string Name, IReadOnlyList<string> Labels, ReadOnlyMemory<double> Values);
