namespace Quantra.Terminal.Live;

/// <summary>What is shown as a live feed.</summary>
/// <param name="Days">How many days.</param>
/// <param name="Pace">From one day to the next.</param>
/// <param name="Server">Tells where the server stands; "" = it is somebody else's.</param>
internal sealed record LiveOptions(int Days, TimeSpan Pace, Func<string> Server);
