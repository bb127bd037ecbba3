namespace Quantra.Client;

/// <summary>What a <see cref="NetworkInternal"/> distributes its shares over.</summary>
public enum InternalAxis
{
    /// <summary>An axis that this version of the client does not know.</summary>
    Unknown,

    /// <summary>Labels are names of variables.</summary>
    Inputs,

    /// <summary>Labels count sessions from the last bar: "-59" to "0", then "+1".</summary>
    Sessions,
}
