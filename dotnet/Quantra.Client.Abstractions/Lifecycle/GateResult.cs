namespace Quantra.Client;

/// <summary>One condition of a promotion.</summary>
/// <param name="Name">"losses", "symbols", "audit", "shadow" or "replay".</param>
/// <param name="IsPassed">Whether the version passes it.</param>
/// <param name="IsOverridden">Whether it failed and was overridden.</param>
/// <param name="Need">What it needs.</param>
/// <param name="Have">What was found.</param>
public sealed record GateResult(string Name, bool IsPassed, bool IsOverridden, string Need, string Have)
{
    /// <summary>Formats one line.</summary>
    /// <returns>For example "audit: failed, needs a passed audit, has none".</returns>
    public override string ToString() =>
        $"{Name}: {(IsPassed ? "passed" : IsOverridden ? "failed and overridden" : "failed")}, needs {Need}, has {Have}";
}
