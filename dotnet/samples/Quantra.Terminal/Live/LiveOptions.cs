namespace Quantra.Terminal.Live;

/// <summary>Options of a live replay.</summary>
/// <param name="Days">Number of days.</param>
/// <param name="Pace">Time between two days.</param>
/// <param name="Server">Returns the status of the program's own server; "" = it has none.</param>
internal sealed record LiveOptions(int Days, TimeSpan Pace, Func<string> Server);
