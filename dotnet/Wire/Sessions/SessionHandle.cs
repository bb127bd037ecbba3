namespace Quantra.Client.Wire;

/// <summary>A session on the call that carries it.</summary>
internal sealed record SessionHandle(SessionCall Call, string Id);
