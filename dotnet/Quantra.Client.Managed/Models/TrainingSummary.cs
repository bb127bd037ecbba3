namespace Quantra.Client.Managed;

/// <summary>Facts about the training of one network, for warnings about requests.</summary>
/// <param name="Card">The model's card.</param>
/// <param name="ReadsVolume">Whether the network reads volumes.</param>
/// <param name="KnowsByName">Whether the network has a node per symbol, and therefore warns of unknown symbols itself.</param>
/// <param name="BarsNeeded">Bars that one forecast depends on.</param>
internal sealed record TrainingSummary(ModelCard Card, bool ReadsVolume, bool KnowsByName, int BarsNeeded);
