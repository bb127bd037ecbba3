using System.Collections.ObjectModel;

namespace Quantra.Client.Managed;

/// <summary>A checked and encoded request, with one row of inputs per symbol that can be forecast.</summary>
internal sealed record PreparedRequest
{
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>[S] which symbols have a row in <see cref="Inputs"/>.</summary>
    public required bool[] Usable { get; init; }

    /// <summary>Symbols of the rows of <see cref="Inputs"/>.</summary>
    public IReadOnlyList<string> UsableSymbols => Usable.AsSpan().Contains(false) ? [.. Symbols.Where((_, row) => Usable[row])] : Symbols;

    public required NetworkInputs Inputs { get; init; }

    /// <summary>yyyymmdd; 0 if unknown.</summary>
    public required int AsOf { get; init; }

    /// <summary>[T] sessions that the network reads, yyyymmdd; empty if unknown.</summary>
    public ReadOnlyMemory<int> Sessions { get; init; }

    public required DateOnly[] TargetSessions { get; init; }

    public required DateOnly? BaseSession { get; init; }

    /// <summary>[S] last raw close; null if unknown.</summary>
    public required double[]? Anchor { get; init; }

    public IReadOnlyList<string> Warnings { get; init; } = [];

    /// <summary>The error of each symbol that cannot be forecast.</summary>
    public IReadOnlyDictionary<string, QuantraError> Refusals { get; init; } = ReadOnlyDictionary<string, QuantraError>.Empty;
}
