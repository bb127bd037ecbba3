namespace Quantra.Client.Wire;

/// <summary>Where a session is open.</summary>
/// <param name="Stream">The call.</param>
/// <param name="Id">Its name there.</param>
internal sealed record OpenedSession(SessionStream Stream, string Id);
