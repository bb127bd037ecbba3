namespace Quantra.Client.Testing;

/// <summary>A version that became the champion, by a promotion or a rollback.</summary>
/// <param name="Model">Name of the model.</param>
/// <param name="Version">Version of the champion.</param>
/// <param name="Reason">Why.</param>
public sealed record ChampionChange(string Model, int Version, string Reason);
