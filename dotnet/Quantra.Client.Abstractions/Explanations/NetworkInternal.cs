using System.Globalization;

namespace Quantra.Client;

/// <summary>Weights that a network itself used for one number of a forecast, for example attention.</summary>
/// <remarks>They are not contributions and do not show what moved the forecast; see <see cref="Attribution.Table"/>.</remarks>
/// <param name="Name">For example "attention". In an ensemble, the member's name precedes it.</param>
/// <param name="Axis">Meaning of the labels.</param>
/// <param name="Labels">L names, or distances from the last session, which <see cref="Attribution.Shares"/> puts into words.</param>
/// <param name="Values">[S, L] shares that add up to 1, row-major; NaN = no forecast for this symbol.</param>
public sealed record NetworkInternal(string Name, InternalAxis Axis, IReadOnlyList<string> Labels, ReadOnlyMemory<double> Values)
{
    /// <inheritdoc/>
    public bool Equals(NetworkInternal? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "attention over 65 sessions".</returns>
    public override string ToString()
    {
        var noun = Axis switch { InternalAxis.Inputs => "input", InternalAxis.Sessions => "session", _ => "label" };
        return $"{Name} over {MessageFormat.Count(Labels.Count, noun)}";
    }

    /// <summary>Describes a label, for example "26 sessions before the last" for the session "-26".</summary>
    internal string Describe(int index)
    {
        var label = Labels[index];
        if (Axis != InternalAxis.Sessions || !int.TryParse(label, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture, out var offset))
            return label;
        var count = MessageFormat.Count(Math.Abs(offset), "session");
        return offset == 0 ? "last session" : $"{count} {(offset < 0 ? "before" : "after")} the last";
    }

    private object?[] Parts() =>
    [
        Name,
        Axis,
        ValueEquality.Of(Labels),
        ValueEquality.Of(Values),
    ];
}
